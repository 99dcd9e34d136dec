/* A = Q R by modified Gram-Schmidt: columns of row-major matrices. */
#include <math.h>

#include "suite.h"

KERNEL void gram_schmidt(int m, int n, double a[m][n], double q[m][n], double r[n][n])
{
    for (int k = 0; k < n; k++) {
        double norm = 0;
        for (int i = 0; i < m; i++)
            norm += a[i][k] * a[i][k];
        r[k][k] = sqrt(norm);
        for (int i = 0; i < m; i++)
            q[i][k] = a[i][k] / r[k][k];
        for (int j = k + 1; j < n; j++) {
            r[k][j] = 0;
            for (int i = 0; i < m; i++)
                r[k][j] += q[i][k] * a[i][j];
            for (int i = 0; i < m; i++)
                a[i][j] -= q[i][k] * r[k][j];
        }
    }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 78);
    int m = first_size(&run, 617), n = next_size(&run, 499);
    size_t count = (size_t)m * n;
    double *a = reals(count, 1), *saved = reals(count, 1), *q = reals(count, 2), *r = reals((size_t)n * n, 3);
    for (int i = 0; i < n; i++)
        saved[(size_t)i * n + i] += 4;
    for (int repetition = 0; repetition < run.repetitions; repetition++) {
        saved[0] += 0.25;
        memcpy(a, saved, count * sizeof *a);
        tick(&run);
        gram_schmidt(m, n, (double (*)[n])a, (double (*)[n])q, (double (*)[n])r);
        tock(&run);
        observe_real(&run, q, count);
        observe_real(&run, r, (size_t)n * n);
    }
    report_real("q", q, count);
    report_real("r", r, (size_t)n * n);
    return finish(&run);
}
