/* A += u v^T + w z^T, then x += beta A^T y and s = A x: updates and products over one matrix, static arrays. */
#include "suite.h"

#ifndef N
#define N 4007
#endif

static double a[N][N], u[N], v[N], w[N], z[N], x[N], y[N], s[N];

static KERNEL void rank_two(double beta)
{
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            a[i][j] = a[i][j] + u[i] * v[j] + w[i] * z[j];
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            x[i] = x[i] + beta * a[j][i] * y[j];
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            s[i] = s[i] + a[i][j] * x[j];
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 176);
    fill_real((double *)a, (size_t)N * N, 1);
    fill_real(u, N, 2);
    fill_real(v, N, 3);
    fill_real(w, N, 4);
    fill_real(z, N, 5);
    fill_real(y, N, 6);
    for (int r = 0; r < run.repetitions; r++) {
        memset(s, 0, sizeof s);
        fill_real(x, N, 7);
        tick(&run);
        rank_two(r % 2 ? 0.01 : -0.01);
        tock(&run);
        observe_real(&run, s, N);
    }
    report_real("a", (double *)a, (size_t)N * N);
    report_real("s", s, N);
    return finish(&run);
}
