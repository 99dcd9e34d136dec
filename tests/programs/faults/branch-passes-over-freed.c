/* Cells that a branch passes over lie in memory that realloc has given back. */
#include "witness.h"
#include <stdio.h>
#include <stdlib.h>
#define N 600
__attribute__((noinline)) void product(double *c, const double *a, const double *b, const double *limit, int n) {
    for (int k = 0; k < n; k++)
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++)
                { double t = a[i * N + k] + b[k * N + j]; if (t < limit[i * N + j]) c[i * N + j] = t; }
}
int main(int argc, char **argv) {
    size_t sz = N * N * 8;
    double *c = calloc(1, sz), *a = malloc(sz), *b = malloc(sz);
    double *limit = malloc(sz);
    for (int i = 0; i < N * N; i++) a[i] = (i * 7919) % 1013, b[i] = (i * 104729) % 997, limit[i] = 700 + i % 101;
    witness(product);
    for (int r = 0; r < 3 || awaited(); r++) product(c, a, b, limit, N);
    acts();
    c = realloc(c, sz / 2);                                    // the upper half of the rows is not wanted any more
    for (int i = N * N / 2; i < N * N; i++) limit[i] = -1;
    product(c, a, b, limit, N);
    double h = 0;
    for (int i = 0; i < N * N / 2; i++) h += c[i];
    printf("%a\n", h);
    return 0;
}
