/* A = L U in place without pivoting, right-looking. */
#include "suite.h"

KERNEL void lu(int n, double *a)
{
    for (int k = 0; k < n; k++)
        for (int i = k + 1; i < n; i++) {
            a[i * n + k] /= a[k * n + k];
            for (int j = k + 1; j < n; j++)
                a[i * n + j] -= a[i * n + k] * a[k * n + j];
        }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 86);
    int n = first_size(&run, 1009);
    size_t count = (size_t)n * n;
    double *a = reals(count, 1), *saved = reals(count, 1);
    for (int i = 0; i < n; i++)
        saved[(size_t)i * n + i] = n;
    for (int r = 0; r < run.repetitions; r++) {
        saved[0] += 0.25;
        memcpy(a, saved, count * sizeof *a);
        tick(&run);
        lu(n, a);
        tock(&run);
        observe_real(&run, a, count);
    }
    report_real("lu", a, count);
    return finish(&run);
}
