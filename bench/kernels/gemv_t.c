/* y = A^T x, each element of y a walk down a column of A. */
#include "suite.h"

KERNEL void gemv_t(int n, int m, double a[n][m], double x[n], double y[m])
{
    for (int j = 0; j < m; j++) {
        y[j] = 0;
        for (int i = 0; i < n; i++)
            y[j] += a[i][j] * x[i];
    }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 237);
    int n = first_size(&run, 4001), m = next_size(&run, 3989);
    double *a = reals((size_t)n * m, 1), *x = reals(n, 2), *y = reals(m, 3);
    for (int r = 0; r < run.repetitions; r++) {
        x[r % n] += 0.25;
        tick(&run);
        gemv_t(n, m, (double (*)[m])a, x, y);
        tock(&run);
        observe_real(&run, y, m);
    }
    report_real("y", y, m);
    return finish(&run);
}
