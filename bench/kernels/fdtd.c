/* Electromagnetic waves in a box, two dimensions, TM: one electric and two magnetic fields, staggered. */
#include "suite.h"

KERNEL void fdtd(int steps, int n, int m, double source, double *ez, double *hx, double *hy, double *material)
{
    for (int t = 0; t < steps; t++) {
        for (int i = 0; i < n; i++)
            for (int j = 0; j < m - 1; j++)
                hx[i * m + j] -= 0.5 * (ez[i * m + j + 1] - ez[i * m + j]);
        for (int i = 0; i < n - 1; i++)
            for (int j = 0; j < m; j++)
                hy[i * m + j] += 0.5 * (ez[(i + 1) * m + j] - ez[i * m + j]);
        for (int i = 1; i < n - 1; i++)
            for (int j = 1; j < m - 1; j++)
                ez[i * m + j] += material[i * m + j] * (hy[i * m + j] - hy[(i - 1) * m + j] -
                                                        hx[i * m + j] + hx[i * m + j - 1]);
        ez[n / 2 * m + m / 2] += source;
    }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 170);
    int n = first_size(&run, 1409), m = next_size(&run, 1201), steps = next_size(&run, 20);
    size_t count = (size_t)n * m;
    double *ez = reals(count, 1), *hx = reals(count, 2), *hy = reals(count, 3), *material = reals(count, 4);
    for (size_t i = 0; i < count; i++)
        material[i] = 0.6 + 0.4 * material[i];
    for (int r = 0; r < run.repetitions; r++) {
        tick(&run);
        fdtd(steps, n, m, 0.5, ez, hx, hy, material);
        tock(&run);
        observe_real(&run, ez, count);
    }
    report_real("ez", ez, count);
    report_real("hx", hx, count);
    return finish(&run);
}
