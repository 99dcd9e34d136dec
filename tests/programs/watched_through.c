/* Functions with loops, called through others that touch no memory and have no loops, in one iteration after another.
   usage: watched_through count */
#include <stdio.h>
#include <stdlib.h>

#define APART __attribute__((noipa))

static long cells[64];

APART void fill(long round)
{
    for (long i = 0; i < 64; i++)
        cells[i] = round + i;
}

APART long sum(long round)
{
    return cells[round % 64] + cells[(round + 1) % 64];
}

APART long through(long round)
{
    fill(round);
    return round;
}

APART long behind(long round)
{
    return sum(round) + 1;
}

int main(int argc, char **argv)
{
    long count = argc > 1 ? atol(argv[1]) : 100, all = 0;
    for (long round = 0; round < count; round++)
        all += through(round) + behind(round);
    printf("%ld\n", all);
    return 0;
}
