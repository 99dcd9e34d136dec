/* Covariance matrix of M variables from N observations: means, centred data, products of columns. */
#include "suite.h"

KERNEL void covariance(int n, int m, double x[n][m], double mean[m], double cov[m][m])
{
    for (int j = 0; j < m; j++) {
        mean[j] = 0;
        for (int i = 0; i < n; i++)
            mean[j] += x[i][j];
        mean[j] /= n;
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++)
            x[i][j] -= mean[j];
    for (int i = 0; i < m; i++)
        for (int j = i; j < m; j++) {
            cov[i][j] = 0;
            for (int k = 0; k < n; k++)
                cov[i][j] += x[k][i] * x[k][j];
            cov[i][j] /= n - 1;
            cov[j][i] = cov[i][j];
        }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 43);
    int n = first_size(&run, 1103), m = next_size(&run, 691);
    double *x = reals((size_t)n * m, 1), *mean = reals(m, 2), *cov = reals((size_t)m * m, 3);
    for (int r = 0; r < run.repetitions; r++) {
        fill_real(x, (size_t)n * m, r);
        tick(&run);
        covariance(n, m, (double (*)[m])x, mean, (double (*)[m])cov);
        tock(&run);
        observe_real(&run, cov, (size_t)m * m);
    }
    report_real("mean", mean, m);
    report_real("cov", cov, (size_t)m * m);
    return finish(&run);
}
