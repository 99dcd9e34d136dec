/* Many small products, as in finite elements: C[e] = A[e] B[e], 31 x 31. */
#include "suite.h"

#define M 31

KERNEL void batched(int count, double (*a)[M][M], double (*b)[M][M], double (*c)[M][M])
{
    for (int e = 0; e < count; e++)
        for (int i = 0; i < M; i++)
            for (int j = 0; j < M; j++) {
                double sum = 0;
                for (int k = 0; k < M; k++)
                    sum += a[e][i][k] * b[e][k][j];
                c[e][i][j] = sum;
            }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 235);
    int count = first_size(&run, 5471);
    size_t total = (size_t)count * M * M;
    double *a = reals(total, 1), *b = reals(total, 2), *c = reals(total, 3);
    for (int r = 0; r < run.repetitions; r++) {
        a[r % total] += 0.25;
        tick(&run);
        batched(count, (double (*)[M][M])a, (double (*)[M][M])b, (double (*)[M][M])c);
        tock(&run);
        observe_real(&run, c, total);
    }
    report_real("c", c, total);
    return finish(&run);
}
