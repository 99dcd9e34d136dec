/* The memory's rate for a plain loop: a[i] = b[i] + s c[i], sized by argv; prints elements per second, the best of five.
   The compiler's stores allocate: 32 bytes move per element. */
#include "suite.h"

KERNEL void triad(size_t n, double *restrict a, const double *restrict b, const double *restrict c, double s)
{
    for (size_t i = 0; i < n; i++)
        a[i] = b[i] + s * c[i];
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 5);
    size_t n = (size_t)first_size(&run, 5592405);
    double *a = reals(n, 1), *b = reals(n, 2), *c = reals(n, 3), best = 0.0;
    for (int r = 0; r < run.repetitions; r++) {
        double start = now();
        triad(n, a, b, c, 3.0);
        double rate = (double)n / (now() - start);
        best = rate > best ? rate : best;
    }
    printf("%.0f\n", best);
    fprintf(stderr, "%a\n", a[n / 2]); /* used */
    return 0;
}
