/* C = alpha A B + beta C, of the symmetric A only the lower triangle stored: each element is used twice. */
#include "suite.h"

KERNEL void symm(int m, int n, double alpha, double beta, double a[m][m], double b[m][n], double c[m][n])
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int k = 0; k < i; k++) {
                c[k][j] += alpha * b[i][j] * a[i][k];
                sum += b[k][j] * a[i][k];
            }
            c[i][j] = beta * c[i][j] + alpha * b[i][j] * a[i][i] + alpha * sum;
        }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 21);
    int m = first_size(&run, 887), n = next_size(&run, 853);
    double *a = reals((size_t)m * m, 1), *b = reals((size_t)m * n, 2), *c = reals((size_t)m * n, 3);
    for (int r = 0; r < run.repetitions; r++) {
        tick(&run);
        symm(m, n, 1.25, 0.5, (double (*)[m])a, (double (*)[n])b, (double (*)[n])c);
        tock(&run);
        observe_real(&run, c, (size_t)m * n);
    }
    report_real("c", c, (size_t)m * n);
    return finish(&run);
}
