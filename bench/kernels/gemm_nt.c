/* C = A B^T: products of rows, accumulated in C. */
#include "suite.h"

KERNEL void gemm_nt(int n, double a[n][n], double b[n][n], double c[n][n])
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            c[i][j] = 0;
            for (int k = 0; k < n; k++)
                c[i][j] += a[i][k] * b[j][k];
        }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 29);
    int n = first_size(&run, 953);
    size_t count = (size_t)n * n;
    double *a = reals(count, 1), *b = reals(count, 2), *c = reals(count, 3);
    for (int r = 0; r < run.repetitions; r++) {
        a[r % count] += 0.25;
        tick(&run);
        gemm_nt(n, (double (*)[n])a, (double (*)[n])b, (double (*)[n])c);
        tock(&run);
        observe_real(&run, c, count);
    }
    report_real("c", c, count);
    return finish(&run);
}
