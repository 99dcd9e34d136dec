/* Cells that a branch passes over are read-only by now. */
#include "witness.h"
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#define N 600
__attribute__((noinline)) void relax(double *c, const double *a, const double *b, int n) {
    for (int k = 0; k < n; k++)
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++) {
                double t = a[i * N + k] + b[k * N + j];
                if (t < c[i * N + j]) c[i * N + j] = t;
            }
}
int main(int argc, char **argv) {
    size_t sz = (N * N * 8 + 4095) & ~4095;
    double *c = mmap(0, sz, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *a = malloc(sz), *b = malloc(sz);
    for (int i = 0; i < N * N; i++) c[i] = 1e9, a[i] = (i * 7919) % 1013, b[i] = (i * 104729) % 997;
    witness(relax);
    for (int r = 0; r < 3 || awaited(); r++) {
        for (int i = 0; i < N * N; i++) c[i] = 1e9;
        relax(c, a, b, N);
    }
    double h = 0;
    for (int i = 0; i < N * N; i++) h += c[i];
    printf("%a\n", h); fflush(stdout);
    acts();
    mprotect(c, sz, PROT_READ);
    for (int i = 0; i < N * N; i++) a[i] += 1e5;
    relax(c, a, b, N); // nothing is smaller: nothing is stored
    puts("the read-only array was left alone");
    return 0;
}
