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
__attribute__((noinline)) static void fill(double c[N][N], double a[N][M])
{
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < M; k++) a[i][k] = (double)((i * k + 1) % 13) / 13;
        for (int j = 0; j < N; j++) c[i][j] = (double)((i + j) % 7) / 7;
    }
}
int main(int argc, char **argv)
{
    double (*a)[M] = malloc(sizeof(double[N][M])), (*c)[N] = malloc(sizeof(double[N][N]));
    fill(c, a);
    witness(main);
    for (int r = 0, left = 4; left; r++) { /* the last three rounds, on fresh numbers, are what counts */
        if (left < 4 || (r > 1 && !awaited())) {
            if (left == 4) acts(), fill(c, a);
            left--;
        }
        tick(); update(1.5, 0.75, c, a); tick();
    }
    unsigned long h = 0;
    for (int i = 0; i < N; i++) for (int j = 0; j <= i; j++) { union { double d; unsigned long u; } v = { c[i][j] }; h = h * 31 + v.u; }
    printf("%016lx\n", h);
    return 0;
}
