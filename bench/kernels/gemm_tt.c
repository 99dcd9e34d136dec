/* C = beta C + A^T B^T, leading dimensions larger than the matrices. */
#include "suite.h"

KERNEL void gemm_tt(long n, long lda, long ldb, long ldc, double beta, double *a, double *b, double *c)
{
    long i, j, k;
    for (i = 0; i < n; i++)
        for (j = 0; j < n; j++) {
            c[i * ldc + j] *= beta;
            for (k = 0; k < n; k++)
                c[i * ldc + j] += a[k * lda + i] * b[j * ldb + k];
        }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 28);
    long n = first_size(&run, 907), lda = n + 7, ldb = n + 3, ldc = n + 1;
    double *a = reals(n * lda, 1), *b = reals(n * ldb, 2), *c = reals(n * ldc, 3);
    for (int r = 0; r < run.repetitions; r++) {
        tick(&run);
        gemm_tt(n, lda, ldb, ldc, 0.75, a, b, c);
        tock(&run);
        observe_real(&run, c, n * ldc);
    }
    report_real("c", c, n * ldc);
    return finish(&run);
}
