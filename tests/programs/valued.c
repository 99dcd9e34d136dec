/* Functions and loops whose values are known: arguments, trip counts, what stays the same in a loop, recursion, calls
 * by tail, returns that skip frames. usage: program [times] */
#include <limits.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef __clang__
#define ALONE __attribute__((noinline))
#else
#define ALONE __attribute__((noipa))
#endif

static jmp_buf back;
static volatile long sink;

ALONE long sum(const long *numbers, int count, long factor)
{
    long total = 0;
    for (int i = 0; i < count; i++)
        total += factor * numbers[i];
    return total;
}

ALONE long depth(long n)
{
    return n == 0 ? 0 : depth(n - 1) + 1 - sink;
}

ALONE long last(long a, long b)
{
    return a ^ b;
}

ALONE long by_tail(long a)
{
    return last(a, 7);
}

ALONE long lowest(long a)
{
    return a ^ 1;
}

ALONE void leave(int code)
{
    longjmp(back, code);
}

ALONE void go(int code)
{
    leave(code);
}

ALONE long triangle(int n)
{
    long total = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++)
            total += last(i, j);
    return total;
}

int main(int argc, char **argv)
{
    int times = argc > 1 ? atoi(argv[1]) : 6;
    long *numbers = aligned_alloc(64, 64 * sizeof *numbers), total = 0;
    volatile int jumps = 0;
    for (int i = 0; i < 64; i++)
        numbers[i] = i * i;
    for (int i = 0; i < times; i++)
        total += sum(numbers, i % 3 == 2 ? 40 : 9, 5);
    total += depth(10) + by_tail(3) + triangle(times) + (lowest(LONG_MIN) & 1);
    if (setjmp(back) < 4)
        go(++jumps);
    printf("%ld %d\n", total, jumps);
    return 0;
}
