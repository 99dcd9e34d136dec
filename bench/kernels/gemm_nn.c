/* C = alpha A B + beta C, flat row-major arrays. */
#include "suite.h"

KERNEL void gemm(int ni, int nj, int nk, double alpha, double beta, const double *a, const double *b, double *c)
{
    for (int i = 0; i < ni; i++)
        for (int j = 0; j < nj; j++) {
            double sum = 0;
            for (int k = 0; k < nk; k++)
                sum += a[i * nk + k] * b[k * nj + j];
            c[i * nj + j] = alpha * sum + beta * c[i * nj + j];
        }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 21);
    int ni = first_size(&run, 929), nj = next_size(&run, 941), nk = next_size(&run, 937);
    double *a = reals((size_t)ni * nk, 1), *b = reals((size_t)nk * nj, 2), *c = reals((size_t)ni * nj, 3);
    for (int r = 0; r < run.repetitions; r++) {
        tick(&run);
        gemm(ni, nj, nk, 1.25, 0.5, a, b, c);
        tock(&run);
        observe_real(&run, c, (size_t)ni * nj);
    }
    report_real("c", c, (size_t)ni * nj);
    return finish(&run);
}
