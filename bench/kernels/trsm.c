/* L X = B with many right-hand sides, in place: forward substitution. */
#include "suite.h"

KERNEL void trsm(int n, int m, double l[n][n], double b[n][m])
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++) {
            double sum = b[i][j];
            for (int k = 0; k < i; k++)
                sum -= l[i][k] * b[k][j];
            b[i][j] = sum / l[i][i];
        }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 63);
    int n = first_size(&run, 977), m = next_size(&run, 811);
    double *l = reals((size_t)n * n, 1), *b = reals((size_t)n * m, 2), *saved = reals((size_t)n * m, 2);
    for (int i = 0; i < n; i++)
        l[(size_t)i * n + i] = 0.5 * n;
    for (int r = 0; r < run.repetitions; r++) {
        saved[r % m] += 0.25;
        memcpy(b, saved, (size_t)n * m * sizeof *b);
        tick(&run);
        trsm(n, m, (double (*)[n])l, (double (*)[m])b);
        tock(&run);
        observe_real(&run, b, (size_t)n * m);
    }
    report_real("x", b, (size_t)n * m);
    return finish(&run);
}
