/* C[i][j][l] = sum over k of A[i][k][j] B[k][l]: one index of a tensor transformed. */
#include "suite.h"

KERNEL void contract(int n, int m, double a[n][m][n], double b[m][m], double c[n][n][m])
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            for (int l = 0; l < m; l++) {
                c[i][j][l] = 0;
                for (int k = 0; k < m; k++)
                    c[i][j][l] += a[i][k][j] * b[k][l];
            }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 45);
    int n = first_size(&run, 181), m = next_size(&run, 137);
    size_t count = (size_t)n * n * m;
    double *a = reals(count, 1), *b = reals((size_t)m * m, 2), *c = reals(count, 3);
    for (int r = 0; r < run.repetitions; r++) {
        b[r % m] += 0.25;
        tick(&run);
        contract(n, m, (double (*)[m][n])a, (double (*)[m])b, (double (*)[n][m])c);
        tock(&run);
        observe_real(&run, c, count);
    }
    report_real("c", c, count);
    return finish(&run);
}
