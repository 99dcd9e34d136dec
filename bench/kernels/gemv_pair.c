/* q = A p and s = A^T r in one pass over A, as a biconjugate gradient step needs them. */
#include "suite.h"

#ifndef N
#define N 4003
#endif

static double a[N][N], p[N], q[N], r[N], s[N];

static KERNEL void gemv_pair(void)
{
    for (int i = 0; i < N; i++)
        s[i] = 0;
    for (int i = 0; i < N; i++) {
        q[i] = 0;
        for (int j = 0; j < N; j++) {
            s[j] = s[j] + r[i] * a[i][j];
            q[i] = q[i] + a[i][j] * p[j];
        }
    }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 127);
    fill_real((double *)a, (size_t)N * N, 1);
    fill_real(p, N, 2);
    fill_real(r, N, 3);
    for (int repetition = 0; repetition < run.repetitions; repetition++) {
        p[repetition % N] += 0.25;
        tick(&run);
        for (int step = 0; step < 5; step++)
            gemv_pair();
        tock(&run);
        observe_real(&run, q, N);
        observe_real(&run, s, N);
    }
    report_real("q", q, N);
    report_real("s", s, N);
    return finish(&run);
}
