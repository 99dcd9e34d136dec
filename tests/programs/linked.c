/* Calls into a library (linked_library.c), whose functions are found at the first call of each, or before. */
#include <signal.h>
#include <stdio.h>

long leaf(long), twice(long), last(long), down(long);

static volatile long found;

static void handler(int number)
{
    found += twice(number);
}

__attribute__((noinline, noipa)) static long middle(long n)
{
    long sum = 0;
    for (long i = 0; i < n; i++)
        sum += twice(i);
    return sum + leaf(1);
}

__attribute__((noinline, noipa)) static long first(long n)
{
    return last(n);
}

int main(void)
{
    signal(SIGUSR1, handler);
    raise(SIGUSR1);
    long sum = middle(10) + first(20) + first(21) + down(5) + last(7);
    printf("%ld\n", sum + found);
    return 3;
}
