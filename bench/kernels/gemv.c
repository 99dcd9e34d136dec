/* y = alpha A x + beta y, row by row, for one vector after another. */
#include "suite.h"

KERNEL void gemv(int n, int m, double alpha, double beta, const double *a, const double *x, double *y)
{
    for (int i = 0; i < n; i++) {
        double sum = 0;
        for (int j = 0; j < m; j++)
            sum += a[i * m + j] * x[j];
        y[i] = alpha * sum + beta * y[i];
    }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 114);
    int n = first_size(&run, 4001), m = next_size(&run, 3989), vectors = next_size(&run, 10);
    double *a = reals((size_t)n * m, 1), *x = reals((size_t)m * vectors, 2), *y = reals((size_t)n * vectors, 3);
    for (int r = 0; r < run.repetitions; r++) {
        tick(&run);
        for (int v = 0; v < vectors; v++)
            gemv(n, m, 1.25, 0.5, a, x + (size_t)m * v, y + (size_t)n * v);
        tock(&run);
        observe_real(&run, y, (size_t)n * vectors);
    }
    report_real("y", y, (size_t)n * vectors);
    return finish(&run);
}
