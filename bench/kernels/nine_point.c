/* Nine-point smoothing in two dimensions with the weights in variables; the caller holds the time loop. */
#include "suite.h"

KERNEL void smooth(int n, int m, const double *w, double from[n][m], double to[n][m])
{
    double centre = w[0], side = w[1], corner = w[2];
    for (int i = 1; i < n - 1; i++)
        for (int j = 1; j < m - 1; j++)
            to[i][j] = centre * from[i][j] +
                       side * (from[i - 1][j] + from[i + 1][j] + from[i][j - 1] + from[i][j + 1]) +
                       corner * (from[i - 1][j - 1] + from[i - 1][j + 1] + from[i + 1][j - 1] + from[i + 1][j + 1]);
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 125);
    int n = first_size(&run, 1601), m = next_size(&run, 1307), steps = next_size(&run, 20);
    size_t count = (size_t)n * m;
    double w[3] = {0.5, 0.1, 0.025}, *a = reals(count, 1), *b = reals(count, 2);
    for (int r = 0; r < run.repetitions; r++) {
        tick(&run);
        for (int t = 0; t < steps; t++) {
            smooth(n, m, w, (double (*)[m])a, (double (*)[m])b);
            smooth(n, m, w, (double (*)[m])b, (double (*)[m])a);
        }
        tock(&run);
        observe_real(&run, a, count);
    }
    report_real("a", a, count);
    return finish(&run);
}
