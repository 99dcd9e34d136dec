/* A = L L^T in place, lower triangle, element by element. */
#include <math.h>

#include "suite.h"

KERNEL void cholesky(int n, double a[n][n])
{
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < i; j++) {
            for (int k = 0; k < j; k++)
                a[i][j] -= a[i][k] * a[j][k];
            a[i][j] /= a[j][j];
        }
        for (int k = 0; k < i; k++)
            a[i][i] -= a[i][k] * a[i][k];
        a[i][i] = sqrt(a[i][i]);
    }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 106);
    int n = first_size(&run, 1103);
    size_t count = (size_t)n * n;
    double *a = reals(count, 1), *saved = reals(count, 1);
    for (int i = 0; i < n; i++)
        saved[(size_t)i * n + i] = 0.5 * n;
    for (int r = 0; r < run.repetitions; r++) {
        saved[0] += 0.25;
        memcpy(a, saved, count * sizeof *a);
        tick(&run);
        cholesky(n, (double (*)[n])a);
        tock(&run);
        observe_real(&run, a, count);
    }
    report_real("l", a, count);
    return finish(&run);
}
