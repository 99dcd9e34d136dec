/* Paths whose numbers are known: decide is called for 0, 1, ..., one less than the argument. */
#include <stdio.h>
#include <stdlib.h>

static volatile int seen[3];

__attribute__((noinline)) static void decide(int n)
{
    if (n % 2)
        seen[0] = n;
    if (n % 3 == 0)
        seen[1] = n;
    if (n % 5 == 0)
        seen[2] = n;
}

__attribute__((noinline)) static void repeat(int count)
{
    int n = 0;
    do
        decide(n);
    while (++n < count);
}

int main(int argc, char **argv)
{
    repeat(argc > 1 ? atoi(argv[1]) : 10);
    printf("%d %d %d\n", seen[0], seen[1], seen[2]);
    return 0;
}
