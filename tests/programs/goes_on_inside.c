/* Functions that go on where no call has led to: behind a computed goto, and behind the end of another function. */
#include <stdio.h>
#include <stdlib.h>

#define APART __attribute__((noinline, noipa))

long guarded(long), behind(long);

void stop(void)
{
    exit(9);
}

void (*volatile stopping)(void) = stop;

/* The return address of the call of stop, which does not return, is the first address of behind. */
asm(".text\n"
    ".globl guarded\n.type guarded, @function\nguarded:\n"
    "test %rdi, %rdi\njz 1f\nlea (%rdi, %rdi), %rax\nret\n1: call *stopping(%rip)\n.size guarded, . - guarded\n"
    ".globl behind\n.type behind, @function\nbehind:\nlea 1(%rdi), %rax\nret\n.size behind, . - behind\n");

APART long leaf(long n)
{
    volatile long sum = 0;
    for (long i = 0; i < n; i++)
        sum += i;
    return sum;
}

/* Where the code of an instruction lies is known at run time only. */
APART long interpret(const char *code, long n)
{
    static void *volatile *places;
    long sum = n;
    if (!places) {
        places = malloc(3 * sizeof *places);
        places[0] = &&add, places[1] = &&call, places[2] = &&end;
    }
    for (;;) {
        sum ^= leaf(2);
        goto *places[*code++ - 'a'];
    add:
        for (long i = 0; i < n; i++)
            sum += i * sum;
        continue;
    call:
        sum += leaf(n);
        continue;
    end:
        return sum;
    }
}

int main(void)
{
    long (*volatile first)(long) = guarded, (*volatile second)(long) = behind;
    long sum = 0;
    for (long i = 1; i <= 10; i++)
        sum += first(i) + second(i);
    for (long i = 0; i < 5; i++)
        sum += interpret("abababc", 20);
    printf("%ld\n", sum);
    return 3;
}
