/* T y = -r for a symmetric Toeplitz matrix T by Durbin's recursion. */
#include "suite.h"

KERNEL void durbin(int n, const double *r, double *y, double *z)
{
    double alpha = -r[0], beta = 1;
    y[0] = -r[0];
    for (int k = 1; k < n; k++) {
        double sum = 0;
        beta = (1 - alpha * alpha) * beta;
        for (int i = 0; i < k; i++)
            sum += r[k - i - 1] * y[i];
        alpha = -(r[k] + sum) / beta;
        for (int i = 0; i < k; i++)
            z[i] = y[i] + alpha * y[k - i - 1];
        for (int i = 0; i < k; i++)
            y[i] = z[i];
        y[k] = alpha;
    }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 54);
    int n = first_size(&run, 21001);
    double *r = reals(n, 1), *y = reals(n, 2), *z = reals(n, 3);
    for (int i = 0; i < n; i++)
        r[i] = 0.5 / (1 + i) + 0.001 * r[i];
    for (int repetition = 0; repetition < run.repetitions; repetition++) {
        r[1] += 0.0001;
        tick(&run);
        durbin(n, r, y, z);
        tock(&run);
        observe_real(&run, y, n);
    }
    report_real("y", y, n);
    return finish(&run);
}
