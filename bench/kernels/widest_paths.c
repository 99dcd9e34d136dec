/* All-pairs widest paths: the best of the narrowest edges, written where it is better. */
#include "suite.h"

#ifndef N
#define N 601
#endif

static double w[N][N];

static KERNEL void widest_paths(void)
{
    for (int k = 0; k < N; k++)
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++) {
                double through = w[i][k] < w[k][j] ? w[i][k] : w[k][j];
                if (through > w[i][j])
                    w[i][j] = through;
            }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 105);
    for (int r = 0; r < run.repetitions; r++) {
        fill_real((double *)w, (size_t)N * N, r);
        tick(&run);
        widest_paths();
        tock(&run);
        observe_real(&run, (double *)w, (size_t)N * N);
    }
    report_real("w", (double *)w, (size_t)N * N);
    return finish(&run);
}
