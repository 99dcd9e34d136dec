/* A program with many mappings does not stand still. */
#include "witness.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
__attribute__((noinline)) static void mm(const double *a, const double *b, double *c, long n) {
    for (long i = 0; i < n; i++)
        for (long j = 0; j < n; j++) {
            double s = 0;
            for (long k = 0; k < n; k++) s += a[i * n + k] * b[k * n + j];
            c[i * n + j] = s;
        }
}
int main(int c, char **v) {
    long n = 500, m = 0;
    double *a = calloc(n * n, 8), *b = calloc(n * n, 8), *d = calloc(n * n, 8);
    for (long i = 0; i < atol(v[1]); i++)
        m += mmap(0, 4096, i & 1 ? PROT_READ : PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED;
    witness(mm);
    for (int i = 0; i < 3 || awaited(); i++) mm(a, b, d, n);
    acts();
    printf("%ld\n", m);
    return 0;
}
