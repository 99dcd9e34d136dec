/* C += alpha A^T B with the sum outermost, static arrays: a product as a sequence of outer products. */
#include "suite.h"

#ifndef N
#define N 1019
#endif

static double a[N][N], b[N][N], c[N][N];

static KERNEL void gemm_tn(double alpha)
{
    for (int k = 0; k < N; k++)
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++)
                c[i][j] += alpha * a[k][i] * b[k][j];
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 41);
    fill_real((double *)a, (size_t)N * N, 1);
    fill_real((double *)b, (size_t)N * N, 2);
    fill_real((double *)c, (size_t)N * N, 3);
    for (int r = 0; r < run.repetitions; r++) {
        tick(&run);
        gemm_tn(r % 2 ? -1.25 : 1.5);
        tock(&run);
        observe_real(&run, (double *)c, (size_t)N * N);
    }
    report_real("c", (double *)c, (size_t)N * N);
    return finish(&run);
}
