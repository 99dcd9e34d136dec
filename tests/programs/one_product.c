/* A product of two matrices on the heap, made once: its outermost loop is met under way. ROWS: c[i][j] for all j, or for
   those up to i. */
#include <stdio.h>
#include <stdlib.h>

#define SQUARE n
#define TRIANGLE i
#ifndef ROWS
#define ROWS SQUARE
#endif

__attribute__((noinline)) static void product(long n, double *restrict c, const double *restrict a,
                                              const double *restrict b)
{
    for (long i = 0; i < n; i++)
        for (long j = 0; j < ROWS; j++) {
            double sum = 0;
            for (long k = 0; k < n; k++)
                sum += a[i * n + k] * b[k * n + j];
            c[i * n + j] = sum;
        }
}

int main(int argc, char **argv)
{
    long n = argc > 1 ? atol(argv[1]) : 100;
    double *a = calloc(n * n, sizeof *a), *b = calloc(n * n, sizeof *b), *c = calloc(n * n, sizeof *c), sum = 0;
    for (long i = 0; i < n * n; i++) {
        a[i] = i % 13;
        b[i] = i % 11;
    }
    product(n, c, a, b);
    for (long i = 0; i < n * n; i++)
        sum += c[i];
    printf("%a\n", sum);
}
