/* U x = b, one right-hand side, from the last row up: counters that go down. */
#include "suite.h"

#ifndef N
#define N 5003
#endif

static double u[N][N], x[N], b[N];

static KERNEL void backward(void)
{
    for (int i = N - 1; i >= 0; i--) {
        x[i] = b[i];
        for (int j = N - 1; j > i; j--)
            x[i] -= u[i][j] * x[j];
        x[i] /= u[i][i];
    }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 196);
    fill_real((double *)u, (size_t)N * N, 1);
    fill_real(b, N, 2);
    for (int i = 0; i < N; i++)
        u[i][i] = 0.25 * N;
    for (int r = 0; r < run.repetitions; r++) {
        tick(&run);
        for (int side = 0; side < 5; side++) {
            b[side] += 0.25;
            backward();
        }
        tock(&run);
        observe_real(&run, x, N);
    }
    report_real("x", x, N);
    return finish(&run);
}
