/* Reads that the hardware does not fetch ahead, beside some that it does or that the program fetches itself. */
#include <stdio.h>
#include <stdlib.h>

#define N 2000
#define STEP 1024
#define LOOP __attribute__((noinline)) static double

static double x[N * STEP];  /* 16 MB */

LOOP in_order(void) { double s = 0; for (int i = 0; i < N; i++) s += x[i]; return s; }
LOOP far_steps(void) { double s = 0; for (int i = 0; i < N; i++) s += x[i * STEP]; return s; }
LOOP scattered(const int *at) { double s = 0; for (int i = 0; i < N; i++) s += x[at[i]]; return s; }
LOOP fetched(const int *at)
{
    double s = 0;
    for (int i = 0; i < N; i++) {
        __builtin_prefetch(&x[at[i + 8]]);
        s += x[at[i]];
    }
    return s;
}

int main(void)
{
    static int at[N + 8];
    unsigned state = 1;
    for (int i = 0; i < N + 8; i++) {
        state = state * 1103515245u + 12345u;
        at[i] = (state >> 8) % (N * STEP);
    }
    printf("%g\n", in_order() + far_steps() + scattered(at) + fetched(at));
    return 0;
}
