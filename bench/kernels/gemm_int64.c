/* C += A B of 64-bit integers, static arrays, columns of C in the outer loop. */
#include "suite.h"

#ifndef N
#define N 797
#endif

static int64_t a[N][N], b[N][N], c[N][N];

static KERNEL void gemm(void)
{
    for (int j = 0; j < N; j++)
        for (int i = 0; i < N; i++)
            for (int k = 0; k < N; k++)
                c[i][j] += a[i][k] * b[k][j];
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 43);
    fill_wide((int64_t *)a, (size_t)N * N, 1);
    fill_wide((int64_t *)b, (size_t)N * N, 2);
    for (int r = 0; r < run.repetitions; r++) {
        a[r % N][0] += 1;
        tick(&run);
        gemm();
        tock(&run);
        observe_wide(&run, (int64_t *)c, (size_t)N * N);
    }
    report_wide("c", (int64_t *)c, (size_t)N * N);
    return finish(&run);
}
