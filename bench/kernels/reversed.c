/* Products of polynomials: each coefficient a sum over one going up and one going down. */
#include "suite.h"

KERNEL void multiply(int n, const double *a, const double *b, double *c)
{
    for (int k = 0; k < n; k++) {
        double sum = 0;
        for (int i = 0; i <= k; i++)
            sum += a[i] * b[k - i];
        c[k] = sum;
    }
    for (int k = n; k < 2 * n - 1; k++) {
        double sum = 0;
        for (int i = k - n + 1; i < n; i++)
            sum += a[i] * b[k - i];
        c[k] = sum;
    }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 62);
    int n = first_size(&run, 19997);
    double *a = reals(n, 1), *b = reals(n, 2), *c = reals(2 * n, 3);
    for (int r = 0; r < run.repetitions; r++) {
        a[r % n] += 0.25;
        tick(&run);
        multiply(n, a, b, c);
        tock(&run);
        observe_real(&run, c, 2 * n);
    }
    report_real("c", c, 2 * n);
    return finish(&run);
}
