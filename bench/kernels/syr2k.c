/* Upper triangle of C += A^T B + B^T A, each element a scalar sum. */
#include "suite.h"

KERNEL void syr2k(int n, int m, double a[m][n], double b[m][n], double c[n][n])
{
    for (int i = 0; i < n; i++)
        for (int j = i; j < n; j++) {
            double sum = 0;
            for (int k = 0; k < m; k++)
                sum += a[k][i] * b[k][j] + b[k][i] * a[k][j];
            c[i][j] += sum;
        }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 25);
    int n = first_size(&run, 743), m = next_size(&run, 727);
    double *a = reals((size_t)n * m, 1), *b = reals((size_t)n * m, 2), *c = reals((size_t)n * n, 3);
    for (int r = 0; r < run.repetitions; r++) {
        tick(&run);
        syr2k(n, m, (double (*)[n])a, (double (*)[n])b, (double (*)[n])c);
        tock(&run);
        observe_real(&run, c, (size_t)n * n);
    }
    report_real("c", c, (size_t)n * n);
    return finish(&run);
}
