/* Lower triangle of C = alpha A A^T + beta C. Sizes are constants; inlined into a loop that calls another function. */
#include "witness.h"
#include <stdio.h>
#include <stdlib.h>
#define N 900
#define M 800
#include <time.h>
__attribute__((noinline)) static void tick(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); fprintf(stderr, "%ld\n", (long)t.tv_nsec % 10); }
static inline void update(double alpha, double beta, double c[N][N], double a[N][M])
{
    for (int i = 0; i < N; i++) {
        for (int j = 0; j <= i; j++)
            c[i][j] *= beta;
        for (int k = 0; k < M; k++)
            for (int j = 0; j <= i; j++)
                c[i][j] += alpha * a[i][k] * a[j][k];
    }
}
int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 10;
    double (*a)[M] = malloc(sizeof(double[N][M])), (*c)[N] = malloc(sizeof(double[N][N]));
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < M; k++) a[i][k] = (double)((i * k + 1) % 13) / 13;
        for (int j = 0; j < N; j++) c[i][j] = (double)((i + j) % 7) / 7;
    }
    witness(main);
    for (int r = 0; r < rounds; r++) { tick(); update(1.5, 0.75, c, a); tick(); }
    acts();
    unsigned long h = 0;
    for (int i = 0; i < N; i++) for (int j = 0; j <= i; j++) { union { double d; unsigned long u; } v = { c[i][j] }; h = h * 31 + v.u; }
    printf("%016lx\n", h);
    return 0;
}
