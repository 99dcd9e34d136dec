/* B = alpha L^T B in place, L unit lower triangular: row i needs the rows below it, as they were. */
#include "suite.h"

KERNEL void trmm(int n, int m, double alpha, double l[n][n], double b[n][m])
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++) {
            for (int k = i + 1; k < n; k++)
                b[i][j] += l[k][i] * b[k][j];
            b[i][j] *= alpha;
        }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 25);
    int n = first_size(&run, 967), m = next_size(&run, 821);
    double *l = reals((size_t)n * n, 1), *b = reals((size_t)n * m, 2), *saved = reals((size_t)n * m, 2);
    for (int r = 0; r < run.repetitions; r++) {
        memcpy(b, saved, (size_t)n * m * sizeof *b);
        tick(&run);
        trmm(n, m, 1 + r * 0.125, (double (*)[n])l, (double (*)[m])b);
        tock(&run);
        observe_real(&run, b, (size_t)n * m);
    }
    report_real("b", b, (size_t)n * m);
    return finish(&run);
}
