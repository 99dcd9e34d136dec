/* Five-point Jacobi with a time loop: there and back between two arrays, four times the last-level cache. */
#include "suite.h"

KERNEL void jacobi(int steps, int n, double a[n][n], double b[n][n])
{
    for (int t = 0; t < steps; t++) {
        for (int i = 1; i < n - 1; i++)
            for (int j = 1; j < n - 1; j++)
                b[i][j] = 0.2 * (a[i][j] + a[i][j - 1] + a[i][j + 1] + a[i - 1][j] + a[i + 1][j]);
        for (int i = 1; i < n - 1; i++)
            for (int j = 1; j < n - 1; j++)
                a[i][j] = 0.2 * (b[i][j] + b[i][j - 1] + b[i][j + 1] + b[i - 1][j] + b[i + 1][j]);
    }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 60);
    int n = first_size(&run, 2897), steps = next_size(&run, 12);
    size_t count = (size_t)n * n;
    double *a = reals(count, 1), *b = reals(count, 2);
    for (int r = 0; r < run.repetitions; r++) {
        tick(&run);
        jacobi(steps, n, (double (*)[n])a, (double (*)[n])b);
        tock(&run);
        observe_real(&run, a, count);
    }
    report_real("a", a, count);
    return finish(&run);
}
