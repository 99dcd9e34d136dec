/* G = (A B) (C D): three products in one function, static arrays. */
#include "suite.h"

#ifndef N
#define N 661
#endif

static double a[N][N], b[N][N], c[N][N], d[N][N], e[N][N], f[N][N], g[N][N];

static KERNEL void three_products(void)
{
    int i, j, k;
    for (i = 0; i < N; i++)
        for (j = 0; j < N; j++) {
            double sum = 0;
            for (k = 0; k < N; k++)
                sum += a[i][k] * b[k][j];
            e[i][j] = sum;
        }
    for (i = 0; i < N; i++)
        for (j = 0; j < N; j++) {
            double sum = 0;
            for (k = 0; k < N; k++)
                sum += c[i][k] * d[k][j];
            f[i][j] = sum;
        }
    for (i = 0; i < N; i++)
        for (j = 0; j < N; j++) {
            double sum = 0;
            for (k = 0; k < N; k++)
                sum += e[i][k] * f[k][j];
            g[i][j] = sum;
        }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 28);
    fill_real((double *)a, (size_t)N * N, 1);
    fill_real((double *)b, (size_t)N * N, 2);
    fill_real((double *)c, (size_t)N * N, 3);
    fill_real((double *)d, (size_t)N * N, 4);
    for (int r = 0; r < run.repetitions; r++) {
        a[r % N][0] += 0.25;
        tick(&run);
        three_products();
        tock(&run);
        observe_real(&run, (double *)g, (size_t)N * N);
    }
    report_real("e", (double *)e, (size_t)N * N);
    report_real("g", (double *)g, (size_t)N * N);
    return finish(&run);
}
