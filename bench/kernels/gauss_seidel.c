/* Gauss-Seidel sweeps in place, each point from neighbours of this and of the last sweep. */
#include "suite.h"

KERNEL void gauss_seidel(int sweeps, int n, double u[n][n], double f[n][n])
{
    for (int t = 0; t < sweeps; t++)
        for (int i = 1; i < n - 1; i++)
            for (int j = 1; j < n - 1; j++)
                u[i][j] = 0.25 * (u[i - 1][j] + u[i][j - 1] + u[i][j + 1] + u[i + 1][j] - f[i][j]);
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 97);
    int n = first_size(&run, 1999), sweeps = next_size(&run, 10);
    size_t count = (size_t)n * n;
    double *u = reals(count, 1), *f = reals(count, 2);
    for (int r = 0; r < run.repetitions; r++) {
        tick(&run);
        gauss_seidel(sweeps, n, (double (*)[n])u, (double (*)[n])f);
        tock(&run);
        observe_real(&run, u, count);
    }
    report_real("u", u, count);
    return finish(&run);
}
