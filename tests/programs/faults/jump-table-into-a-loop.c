/* A jump table leads into a loop, to an instruction under the patch. Without unwind tables, stripped. */
#include "witness.h"
#include <stdio.h>
#include <stdlib.h>
#define N 300
/* a switch into a loop (Duff's device), built without unwind tables and stripped */
__attribute__((noinline, noclone)) void product(double *c, const double *a, const double *b, long n, int way, long m) {
    long left = n;
    switch (way) {
    case 2: a += 1; goto all;
    case 3: b += 1; goto all;
    case 4: c += 1; goto all;
    case 5: a += 2; goto all;
    case 6: b += 2; goto all;
    case 0: all:
        do {
            m = n;
    case 1:;
            long j = 0;
            do {
                double s = 0;
                const double *p = a, *q = b + j;
                long k = m;
                do { s += *p * *q; p++; q += N; } while (--k);
                c[j] = s;
            } while (++j < n);
            c += N; a += N;
        } while (--left);
    }
}
int main(int argc, char **argv) {
    double *a = malloc(N * N * 8 + 64), *b = malloc(N * N * 8 + 64), *c = malloc(N * N * 8 + 64);
    for (int i = 0; i < N * N; i++) a[i] = i % 1013, b[i] = i % 997;
    witness(product);
    for (int r = 0; r < 3 || awaited(); r++) product(c, a, b, N, 0, 0);
    acts();
    product(c, a, b, N, 1, 17);
    double h = 0; for (int i = 0; i < N * N; i++) h += c[i] * (i % 7);
    printf("%a\n", h);
    return 0;
}
