/* Poisson's equation in single precision, 19-point Jacobi: weights of axes and edges and the inverse diagonal in
   seven arrays, the sum of squared residuals beside it, copied back. */
#include "suite.h"

#ifndef N
#define N 101
#endif
#define M (N - 2)
#define L (2 * N - 1)

static float p[N][M][L], rhs[N][M][L], work[N][M][L], ax[N][M][L], ay[N][M][L], az[N][M][L], bxy[N][M][L],
    byz[N][M][L], bxz[N][M][L], inverse[N][M][L];

static KERNEL float poisson(int sweeps, float omega)
{
    float residual = 0;
    for (int t = 0; t < sweeps; t++) {
        residual = 0;
        for (int i = 1; i < N - 1; i++)
            for (int j = 1; j < M - 1; j++)
                for (int k = 1; k < L - 1; k++) {
                    float s = ax[i][j][k] * (p[i + 1][j][k] + p[i - 1][j][k]) +
                              ay[i][j][k] * (p[i][j + 1][k] + p[i][j - 1][k]) +
                              az[i][j][k] * (p[i][j][k + 1] + p[i][j][k - 1]) +
                              bxy[i][j][k] * (p[i + 1][j + 1][k] - p[i + 1][j - 1][k] -
                                              p[i - 1][j + 1][k] + p[i - 1][j - 1][k]) +
                              byz[i][j][k] * (p[i][j + 1][k + 1] - p[i][j - 1][k + 1] -
                                              p[i][j + 1][k - 1] + p[i][j - 1][k - 1]) +
                              bxz[i][j][k] * (p[i + 1][j][k + 1] - p[i - 1][j][k + 1] -
                                              p[i + 1][j][k - 1] + p[i - 1][j][k - 1]) + rhs[i][j][k];
                    float change = s * inverse[i][j][k] - p[i][j][k];
                    residual += change * change;
                    work[i][j][k] = p[i][j][k] + omega * change;
                }
        for (int i = 1; i < N - 1; i++)
            for (int j = 1; j < M - 1; j++)
                for (int k = 1; k < L - 1; k++)
                    p[i][j][k] = work[i][j][k];
    }
    return residual;
}

static void weights(float *x, size_t count, uint64_t seed, float middle, float spread)
{
    fill_single(x, count, seed);
    for (size_t i = 0; i < count; i++)
        x[i] = middle + spread * x[i];
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 195);
    int sweeps = next_size(&run, 10);
    size_t count = (size_t)N * M * L;
    float residual = 0;
    fill_single((float *)p, count, 1);
    fill_single((float *)rhs, count, 2);
    weights((float *)ax, count, 3, 1.0f, 0.25f);
    weights((float *)ay, count, 4, 1.0f, 0.25f);
    weights((float *)az, count, 5, 1.0f, 0.25f);
    weights((float *)bxy, count, 6, 0.0f, 0.125f);
    weights((float *)byz, count, 7, 0.0f, 0.125f);
    weights((float *)bxz, count, 8, 0.0f, 0.125f);
    weights((float *)inverse, count, 9, 0.125f, 0.0625f);
    for (int r = 0; r < run.repetitions; r++) {
        tick(&run);
        residual = poisson(sweeps, 0.75f);
        tock(&run);
        observe_single(&run, &residual, 1);
        observe_single(&run, (float *)p, count);
    }
    report_single("residual", &residual, 1);
    report_single("p", (float *)p, count);
    return finish(&run);
}
