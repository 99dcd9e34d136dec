/* Three-point Jacobi in place of two arrays, copied back after each step. */
#include "suite.h"

KERNEL void jacobi(int steps, int n, double *a, double *b)
{
    for (int t = 0; t < steps; t++) {
        for (int i = 1; i < n - 1; i++)
            b[i] = 0.33333 * (a[i - 1] + a[i] + a[i + 1]);
        for (int i = 1; i < n - 1; i++)
            a[i] = b[i];
    }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 92);
    int n = first_size(&run, 400009), steps = next_size(&run, 499);
    double *a = reals(n, 1), *b = reals(n, 2);
    a[0] = a[n - 1] = 1;
    for (int r = 0; r < run.repetitions; r++) {
        fill_real(a + 1, n - 2, r);
        tick(&run);
        jacobi(steps, n, a, b);
        tock(&run);
        observe_real(&run, a, n);
    }
    report_real("a", a, n);
    return finish(&run);
}
