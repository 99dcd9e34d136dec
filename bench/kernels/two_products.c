/* D = beta D + (alpha A B) C with the first product in a temporary. */
#include "suite.h"

KERNEL void two_products(int n, int m, int p, int q, double alpha, double beta, double a[n][m], double b[m][p],
                         double c[p][q], double d[n][q], double t[n][p])
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < p; j++) {
            t[i][j] = 0;
            for (int k = 0; k < m; k++)
                t[i][j] += alpha * a[i][k] * b[k][j];
        }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < q; j++) {
            d[i][j] *= beta;
            for (int k = 0; k < p; k++)
                d[i][j] += t[i][k] * c[k][j];
        }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 27);
    int n = first_size(&run, 751), m = next_size(&run, 773), p = next_size(&run, 757), q = next_size(&run, 769);
    double *a = reals((size_t)n * m, 1), *b = reals((size_t)m * p, 2), *c = reals((size_t)p * q, 3);
    double *d = reals((size_t)n * q, 4), *t = reals((size_t)n * p, 5);
    for (int r = 0; r < run.repetitions; r++) {
        tick(&run);
        two_products(n, m, p, q, 1.5, 0.5, (double (*)[m])a, (double (*)[p])b, (double (*)[q])c, (double (*)[q])d,
                     (double (*)[p])t);
        tock(&run);
        observe_real(&run, d, (size_t)n * q);
    }
    report_real("d", d, (size_t)n * q);
    return finish(&run);
}
