/* A function in no loop of its own, called through a pointer. usage: pointer_called repetitions */
#include <stdio.h>
#include <stdlib.h>

static double state;

__attribute__((noinline)) static double damp(double x)
{
    state = 0.75 * state + 0.25 * x;
    state = 0.5 * state + 0.5 * x / (1.0 + state * state);
    return state;
}

int main(int argc, char **argv)
{
    double (*volatile chosen)(double) = damp;
    int repetitions = argc > 1 ? atoi(argv[1]) : 1000;
    for (int r = 0; r < repetitions; r++)
        for (int i = 0; i < 1000; i++)
            chosen(i);
    printf("%a\n", state);
    return 0;
}
