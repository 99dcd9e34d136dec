/* Seven-point Jacobi in three dimensions, copied back after each step, flat arrays. */
#include "suite.h"

#define AT(i, j, k) (((i) * n + (j)) * n + (k))

KERNEL void jacobi(int steps, int n, double c0, double c1, double *a, double *b)
{
    for (int t = 0; t < steps; t++) {
        for (int i = 1; i < n - 1; i++)
            for (int j = 1; j < n - 1; j++)
                for (int k = 1; k < n - 1; k++)
                    b[AT(i, j, k)] = c0 * a[AT(i, j, k)] +
                                     c1 * (a[AT(i - 1, j, k)] + a[AT(i + 1, j, k)] + a[AT(i, j - 1, k)] +
                                           a[AT(i, j + 1, k)] + a[AT(i, j, k - 1)] + a[AT(i, j, k + 1)]);
        for (int i = 1; i < n - 1; i++)
            for (int j = 1; j < n - 1; j++)
                for (int k = 1; k < n - 1; k++)
                    a[AT(i, j, k)] = b[AT(i, j, k)];
    }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 85);
    int n = first_size(&run, 179), steps = next_size(&run, 12);
    size_t count = (size_t)n * n * n;
    double *a = reals(count, 1), *b = reals(count, 2);
    for (int r = 0; r < run.repetitions; r++) {
        tick(&run);
        jacobi(steps, n, 0.4, 0.1, a, b);
        tock(&run);
        observe_real(&run, a, count);
    }
    report_real("a", a, count);
    return finish(&run);
}
