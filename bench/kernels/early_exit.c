/* The first pair of points that lie closer than a limit: the search ends where the data says. */
#include "suite.h"

KERNEL int close_pair(int n, double limit, const double *x, const double *y, int *other)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++) {
            double dx = x[i] - x[j], dy = y[i] - y[j];
            if (dx * dx + dy * dy < limit) {
                *other = j;
                return i;
            }
        }
    return -1;
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 114);
    int n = first_size(&run, 20011);
    double *x = reals(n, 1), *y = reals(n, 2);
    int32_t found[2] = {0, 0};
    /* A grid has no close pair but the one put there. */
    for (int i = 0; i < n; i++) {
        x[i] = i % 1009 + 0.25 * x[i];
        y[i] = i / 1009 + 0.25 * y[i];
    }
    for (int r = 0; r < run.repetitions; r++) {
        int late = n - 1 - r % (n / 3), early = r % (n / 3);
        double kept_x = x[late], kept_y = y[late];
        x[late] = x[early] + 1e-5;
        y[late] = y[early];
        tick(&run);
        found[0] = close_pair(n, 1e-8, x, y, &found[1]);
        tock(&run);
        x[late] = kept_x;
        y[late] = kept_y;
        observe_integer(&run, found, 2);
    }
    report_integer("found", found, 2);
    return finish(&run);
}
