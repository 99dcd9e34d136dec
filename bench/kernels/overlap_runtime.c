/* Averages of neighbours from one array to another, which at run time is the same one, shifted by an element: each
   result is read again at once. One pass only: more of them could be tiled in time. */
#include "suite.h"

KERNEL void average(int n, int m, const double *from, double *to)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++)
            to[i * m + j] = 0.25 * from[i * m + j] + 0.75 * from[i * m + j + 1];
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 640);
    int n = first_size(&run, 1801), m = next_size(&run, 1999), shift = next_size(&run, 1), times = next_size(&run, 1);
    size_t count = (size_t)n * m + 1 + shift;
    double *x = reals(count, 1);
    for (int r = 0; r < run.repetitions; r++) {
        fill_real(x, count, r);
        tick(&run);
        for (int time = 0; time < times; time++)
            average(n, m, x, x + shift);
        tock(&run);
        observe_real(&run, x, count);
    }
    report_real("x", x, count);
    return finish(&run);
}
