/* A matrix of floats scaled by integers and multiplied in double precision. */
#include "suite.h"

KERNEL void product(int n, int m, int p, const float *a, const int32_t *scale, const float *b, double *c)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < p; j++) {
            double sum = 0;
            for (int k = 0; k < m; k++)
                sum += (double)a[i * m + k] * scale[k] * b[k * p + j];
            c[i * p + j] = sum;
        }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 35);
    int n = first_size(&run, 811), m = next_size(&run, 797), p = next_size(&run, 823);
    float *a = singles((size_t)n * m, 1), *b = singles((size_t)m * p, 2);
    int32_t *scale = integers(m, 3);
    double *c = reals((size_t)n * p, 4);
    for (int r = 0; r < run.repetitions; r++) {
        a[r % n] += 0.25f;
        tick(&run);
        product(n, m, p, a, scale, b, c);
        tock(&run);
        observe_real(&run, c, (size_t)n * p);
    }
    report_real("c", c, (size_t)n * p);
    return finish(&run);
}
