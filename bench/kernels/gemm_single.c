/* C += A B in single precision, rows of C updated row by row of B. */
#include "suite.h"

KERNEL void gemm(int n, const float *a, const float *b, float *c)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++) {
            float factor = a[i * n + k];
            for (int j = 0; j < n; j++)
                c[i * n + j] += factor * b[k * n + j];
        }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 28);
    int n = first_size(&run, 1181);
    size_t count = (size_t)n * n;
    float *a = singles(count, 1), *b = singles(count, 2), *c = singles(count, 3);
    for (int r = 0; r < run.repetitions; r++) {
        memset(c, 0, count * sizeof *c);
        a[r % count] += 0.25f;
        tick(&run);
        gemm(n, a, b, c);
        tock(&run);
        observe_single(&run, c, count);
    }
    report_single("c", c, count);
    return finish(&run);
}
