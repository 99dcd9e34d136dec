/* Lower triangle of C = alpha A A^T + beta C. */
#include "suite.h"

KERNEL void syrk(int n, int m, double alpha, double beta, const double *a, double *c)
{
    for (int i = 0; i < n; i++) {
        for (int j = 0; j <= i; j++)
            c[i * n + j] *= beta;
        for (int k = 0; k < m; k++)
            for (int j = 0; j <= i; j++)
                c[i * n + j] += alpha * a[i * m + k] * a[j * m + k];
    }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 41);
    int n = first_size(&run, 1103), m = next_size(&run, 877);
    double *a = reals((size_t)n * m, 1), *c = reals((size_t)n * n, 2);
    for (int r = 0; r < run.repetitions; r++) {
        tick(&run);
        syrk(n, m, 1.25, 0.5, a, c);
        tock(&run);
        observe_real(&run, c, (size_t)n * n);
    }
    report_real("c", c, (size_t)n * n);
    return finish(&run);
}
