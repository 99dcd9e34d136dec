/* Smoothing down the columns from one array to another, which at run time is the same one, shifted by some elements:
   each result is read again a few iterations later. */
#include "suite.h"

KERNEL void smooth(int n, int m, const double *from, double *to)
{
    for (int j = 0; j < m; j++)
        for (int i = 0; i < n; i++)
            to[i * m + j] = 0.5 * (from[i * m + j] + from[(i + 1) * m + j]);
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 199);
    int n = first_size(&run, 1801), m = next_size(&run, 1999), shift = next_size(&run, 13), times = next_size(&run, 12);
    size_t count = ((size_t)n + 1) * m + shift;
    double *x = reals(count, 1);
    for (int r = 0; r < run.repetitions; r++) {
        fill_real(x, count, r);
        tick(&run);
        for (int time = 0; time < times; time++)
            smooth(n, m, x, x + shift);
        tock(&run);
        observe_real(&run, x, count);
    }
    report_real("x", x, count);
    return finish(&run);
}
