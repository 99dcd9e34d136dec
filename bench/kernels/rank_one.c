/* A += alpha x y^T, column by column of a row-major matrix. */
#include "suite.h"

KERNEL void rank_one(int n, int m, double alpha, double a[n][m], double *x, double *y)
{
    for (int j = 0; j < m; j++)
        for (int i = 0; i < n; i++)
            a[i][j] += alpha * x[i] * y[j];
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 61);
    int n = first_size(&run, 4001), m = next_size(&run, 3989);
    double *a = reals((size_t)n * m, 1), *x = reals(n, 2), *y = reals(m, 3);
    for (int r = 0; r < run.repetitions; r++) {
        tick(&run);
        for (int update = 0; update < 4; update++)
            rank_one(n, m, update % 2 ? 0.75 : -0.5, (double (*)[m])a, x, y);
        tock(&run);
        observe_real(&run, a, (size_t)n * m);
    }
    report_real("a", a, (size_t)n * m);
    return finish(&run);
}
