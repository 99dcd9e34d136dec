/* Functions that are entered without a call of their own: by tail calls, longjmp, swapcontext, signals, in threads. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <ucontext.h>

#define APART __attribute__((noinline, noipa))

long even(long), odd(long);

APART long spin(long n)
{
    volatile long sum = 0;
    for (long i = 0; i < n; i++)
        sum += i;
    return sum;
}

APART long last(long n)
{
    return spin(2 * n);
}

APART long first(long n)
{
    return last(n + 1);
}

APART long even(long n)
{
    return n == 0 ? spin(100) : odd(n - 1);
}

APART long odd(long n)
{
    return n == 0 ? spin(50) : even(n - 1);
}

static jmp_buf back;

APART void deep(long n)
{
    if (n == 0)
        longjmp(back, 1);
    spin(5);
    deep(n - 1);
    spin(1);
}

APART long jumper(long n)
{
    volatile long sum = 0;
    for (volatile long i = 0; i < n; i++) {
        if (setjmp(back) == 0)
            deep(i % 4);
        else
            sum += spin(30);
    }
    return sum + spin(200);
}

static ucontext_t outside, inside;
static char stack[1 << 16];

APART static void coroutine(void)
{
    for (;;) {
        spin(40);
        swapcontext(&inside, &outside);
        spin(20);
    }
}

APART long switches(long n)
{
    getcontext(&inside);
    inside.uc_stack.ss_sp = stack;
    inside.uc_stack.ss_size = sizeof stack;
    makecontext(&inside, coroutine, 0);
    for (long i = 0; i < n; i++) {
        spin(10);
        swapcontext(&outside, &inside);
    }
    return spin(300);
}

static volatile long handled;

APART static void handler(int number)
{
    (void)number;
    handled += spin(25);
}

APART long signals(long n)
{
    signal(SIGUSR1, handler);
    for (long i = 0; i < n; i++) {
        raise(SIGUSR1);
        spin(15);
    }
    return handled;
}

APART static void *thread(void *argument)
{
    return (void *)(spin((long)argument) + first(10));
}

APART long threads(long n)
{
    long sum = 0;
    for (long i = 0; i < n; i++) {
        pthread_t other;
        void *result;
        pthread_create(&other, 0, thread, (void *)(100 * i));
        pthread_join(other, &result);
        sum += (long)result;
    }
    return sum;
}

int main(void)
{
    long sum = 0;
    for (int i = 0; i < 20; i++)
        sum += first(20) + even(10) + odd(8);
    sum += jumper(40) + switches(40) + signals(40) + threads(5);
    printf("%ld\n", sum);
    return 0;
}
