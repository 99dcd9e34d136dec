/* Correlation matrix: columns brought to mean 0 and deviation 1 (not where a column is constant), then products. */
#include <math.h>

#include "suite.h"

#ifndef N
#define N 1009
#endif
#define M 647

static double x[N][M], mean[M], deviation[M], corr[M][M];

static KERNEL void correlation(void)
{
    for (int j = 0; j < M; j++) {
        mean[j] = 0;
        for (int i = 0; i < N; i++)
            mean[j] += x[i][j];
        mean[j] /= N;
    }
    for (int j = 0; j < M; j++) {
        deviation[j] = 0;
        for (int i = 0; i < N; i++)
            deviation[j] += (x[i][j] - mean[j]) * (x[i][j] - mean[j]);
        deviation[j] = sqrt(deviation[j] / N);
        if (deviation[j] <= 1e-9)
            deviation[j] = 1;
    }
    for (int i = 0; i < N; i++)
        for (int j = 0; j < M; j++)
            x[i][j] = (x[i][j] - mean[j]) / (sqrt((double)N) * deviation[j]);
    for (int i = 0; i < M - 1; i++) {
        corr[i][i] = 1;
        for (int j = i + 1; j < M; j++) {
            corr[i][j] = 0;
            for (int k = 0; k < N; k++)
                corr[i][j] += x[k][i] * x[k][j];
            corr[j][i] = corr[i][j];
        }
    }
    corr[M - 1][M - 1] = 1;
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 55);
    for (int r = 0; r < run.repetitions; r++) {
        fill_real((double *)x, N * M, r);
        tick(&run);
        correlation();
        tock(&run);
        observe_real(&run, (double *)corr, M * M);
    }
    report_real("mean", mean, M);
    report_real("corr", (double *)corr, M * M);
    return finish(&run);
}
