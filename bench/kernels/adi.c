/* Heat on a square, alternating directions implicit: each half step solves along one direction for every line. */
#include "suite.h"

#ifndef N
#define N 1301
#endif

static double u[N][N], v[N][N], p[N][N], q[N][N];

/* Per direction: -r w[l-1] + (1 + 2 r) w[l] - r w[l+1] = the explicit half step across. */
static KERNEL void adi(int steps, double r)
{
    for (int t = 0; t < steps; t++) {
        for (int i = 1; i < N - 1; i++) {
            v[0][i] = 1;
            p[i][0] = 0;
            q[i][0] = v[0][i];
            for (int j = 1; j < N - 1; j++) {
                p[i][j] = r / (1 + 2 * r - r * p[i][j - 1]);
                q[i][j] = (r * u[j][i - 1] + (1 - 2 * r) * u[j][i] + r * u[j][i + 1] + r * q[i][j - 1]) /
                          (1 + 2 * r - r * p[i][j - 1]);
            }
            v[N - 1][i] = 1;
            for (int j = N - 2; j >= 1; j--)
                v[j][i] = p[i][j] * v[j + 1][i] + q[i][j];
        }
        for (int i = 1; i < N - 1; i++) {
            u[i][0] = 1;
            p[i][0] = 0;
            q[i][0] = u[i][0];
            for (int j = 1; j < N - 1; j++) {
                p[i][j] = r / (1 + 2 * r - r * p[i][j - 1]);
                q[i][j] = (r * v[i - 1][j] + (1 - 2 * r) * v[i][j] + r * v[i + 1][j] + r * q[i][j - 1]) /
                          (1 + 2 * r - r * p[i][j - 1]);
            }
            u[i][N - 1] = 1;
            for (int j = N - 2; j >= 1; j--)
                u[i][j] = p[i][j] * u[i][j + 1] + q[i][j];
        }
    }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 97);
    int steps = next_size(&run, 5);
    fill_real((double *)u, (size_t)N * N, 1);
    fill_real((double *)v, (size_t)N * N, 2);
    for (int repetition = 0; repetition < run.repetitions; repetition++) {
        tick(&run);
        adi(steps, 0.35);
        tock(&run);
        observe_real(&run, (double *)u, (size_t)N * N);
    }
    report_real("u", (double *)u, (size_t)N * N);
    return finish(&run);
}
