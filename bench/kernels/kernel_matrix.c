/* Gaussian kernel matrix of points in many dimensions: squared distances, then exp. */
#include <math.h>

#include "suite.h"

KERNEL void kernel_matrix(int n, int m, int d, double gamma, const double *x, const double *y, double *k)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++) {
            double sum = 0;
            for (int l = 0; l < d; l++) {
                double difference = x[i * d + l] - y[j * d + l];
                sum += difference * difference;
            }
            k[i * m + j] = exp(-gamma * sum);
        }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 153);
    int n = first_size(&run, 1103), m = next_size(&run, 1201), d = next_size(&run, 127);
    double *x = reals((size_t)n * d, 1), *y = reals((size_t)m * d, 2), *k = reals((size_t)n * m, 3);
    for (int r = 0; r < run.repetitions; r++) {
        x[r % n] += 0.25;
        tick(&run);
        kernel_matrix(n, m, d, 0.125, x, y, k);
        tock(&run);
        observe_real(&run, k, (size_t)n * m);
    }
    report_real("k", k, (size_t)n * m);
    return finish(&run);
}
