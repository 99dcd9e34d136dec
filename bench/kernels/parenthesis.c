/* The cheapest order of a chain of matrix products: best[i][j] over all places to split i..j, shorter chains first. */
#include "suite.h"

#ifndef N
#define N 997
#endif

static int64_t best[N][N], size[N + 1];

static KERNEL void parenthesise(void)
{
    for (int i = N - 1; i >= 0; i--) {
        best[i][i] = 0;
        for (int j = i + 1; j < N; j++) {
            int64_t cheapest = INT64_MAX;
            for (int k = i; k < j; k++) {
                int64_t cost = best[i][k] + best[k + 1][j] + size[i] * size[k + 1] * size[j + 1];
                if (cost < cheapest)
                    cheapest = cost;
            }
            best[i][j] = cheapest;
        }
    }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 86);
    fill_wide((int64_t *)best, (size_t)N * N, 1);
    for (int r = 0; r < run.repetitions; r++) {
        fill_wide(size, N + 1, r);
        tick(&run);
        parenthesise();
        tock(&run);
        observe_wide(&run, (int64_t *)best, (size_t)N * N);
    }
    report_wide("best", (int64_t *)best, (size_t)N * N);
    return finish(&run);
}
