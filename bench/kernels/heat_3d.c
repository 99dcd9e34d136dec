/* Heat in three dimensions with a coefficient per cell; one step is a function, the caller holds the time loop. */
#include "suite.h"

#ifndef N
#define N 173
#endif

static double u[N][N][N], next[N][N][N], k[N][N][N];

static KERNEL void heat(double (*restrict to)[N][N], double (*restrict from)[N][N])
{
    for (int x = 1; x < N - 1; x++)
        for (int y = 1; y < N - 1; y++)
            for (int z = 1; z < N - 1; z++) {
                double centre = 2.0 * from[x][y][z];
                to[x][y][z] = from[x][y][z] + k[x][y][z] * (from[x + 1][y][z] - centre + from[x - 1][y][z] +
                                                            (from[x][y + 1][z] - centre + from[x][y - 1][z]) +
                                                            (from[x][y][z + 1] - centre + from[x][y][z - 1]));
            }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 66);
    int steps = next_size(&run, 10);
    size_t count = (size_t)N * N * N;
    fill_real((double *)u, count, 1);
    fill_real((double *)k, count, 2);
    for (int x = 0; x < N; x++)
        for (int y = 0; y < N; y++)
            for (int z = 0; z < N; z++)
                k[x][y][z] = 0.1 + 0.05 * k[x][y][z];
    memcpy(next, u, sizeof u);
    for (int r = 0; r < run.repetitions; r++) {
        tick(&run);
        for (int t = 0; t < steps; t++) {
            heat(next, u);
            heat(u, next);
        }
        tock(&run);
        observe_real(&run, (double *)u, count);
    }
    report_real("u", (double *)u, count);
    return finish(&run);
}
