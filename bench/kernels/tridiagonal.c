/* Many tridiagonal systems, one per column: elimination down, substitution up, column after column. */
#include "suite.h"

KERNEL void solve(int n, int m, double *lower, double *diagonal, double *upper, double *x, double *factor)
{
    for (int j = 0; j < m; j++) {
        factor[j] = upper[j] / diagonal[j];
        x[j] = x[j] / diagonal[j];
        for (int i = 1; i < n; i++) {
            double pivot = diagonal[i * m + j] - lower[i * m + j] * factor[(i - 1) * m + j];
            factor[i * m + j] = upper[i * m + j] / pivot;
            x[i * m + j] = (x[i * m + j] - lower[i * m + j] * x[(i - 1) * m + j]) / pivot;
        }
        for (int i = n - 2; i >= 0; i--)
            x[i * m + j] -= factor[i * m + j] * x[(i + 1) * m + j];
    }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 58);
    int n = first_size(&run, 1709), m = next_size(&run, 1723), times = next_size(&run, 4);
    size_t count = (size_t)n * m;
    double *lower = reals(count, 1), *diagonal = reals(count, 2), *upper = reals(count, 3);
    double *x = reals(count, 4), *factor = reals(count, 5);
    for (size_t i = 0; i < count; i++)
        diagonal[i] += 3;
    for (int r = 0; r < run.repetitions; r++) {
        fill_real(x, count, r);
        tick(&run);
        for (int time = 0; time < times; time++)
            solve(n, m, lower, diagonal, upper, x, factor);
        tock(&run);
        observe_real(&run, x, count);
    }
    report_real("x", x, count);
    return finish(&run);
}
