/* 27-point stencil in three dimensions, weights by distance, summed in three small loops around each point. */
#include "suite.h"

#ifndef N
#define N 149
#endif

static double a[N][N][N], b[N][N][N], w[3][3][3];

static KERNEL void apply(double out[N][N][N], double in[N][N][N])
{
    for (int i = 1; i < N - 1; i++)
        for (int j = 1; j < N - 1; j++)
            for (int k = 1; k < N - 1; k++) {
                double sum = 0;
                for (int x = 0; x < 3; x++)
                    for (int y = 0; y < 3; y++)
                        for (int z = 0; z < 3; z++)
                            sum += w[x][y][z] * in[i + x - 1][j + y - 1][k + z - 1];
                out[i][j][k] = sum;
            }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 66);
    const double weight[4] = {0.4, 0.05, 0.0125, 0.01875};
    size_t count = (size_t)N * N * N;
    fill_real((double *)a, count, 1);
    fill_real((double *)b, count, 2);
    for (int x = 0; x < 3; x++)
        for (int y = 0; y < 3; y++)
            for (int z = 0; z < 3; z++)
                w[x][y][z] = weight[abs(x - 1) + abs(y - 1) + abs(z - 1)];
    for (int r = 0; r < run.repetitions; r++) {
        tick(&run);
        for (int t = 0; t < 4; t++) {
            apply(b, a);
            apply(a, b);
        }
        tock(&run);
        observe_real(&run, (double *)a, count);
    }
    report_real("a", (double *)a, count);
    return finish(&run);
}
