/* Row-wise smoothing between two arrays that are apart in most calls and the same one, shifted, in some: the code
   that is right for the first is wrong for the second. */
#include "suite.h"

KERNEL void smooth(int n, int m, const double *from, double *to)
{
    for (int i = 1; i < n - 1; i++)
        for (int j = 1; j < m - 1; j++)
            to[i * m + j] = 0.2 * (from[i * m + j] + from[i * m + j - 1] + from[i * m + j + 1] +
                                   from[(i - 1) * m + j] + from[(i + 1) * m + j]);
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 110);
    int n = first_size(&run, 1201), m = next_size(&run, 1009), times = next_size(&run, 60);
    size_t count = (size_t)n * m;
    double *a = reals(count + m, 1), *b = reals(count, 2);
    for (int r = 0; r < run.repetitions; r++) {
        tick(&run);
        for (int time = 0; time < times; time++) {
            smooth(n, m, a, b);
            smooth(n, m, b, a);
        }
        if (r % 3 == 2)
            smooth(n, m, a, a + 1 + r % m);
        tock(&run);
        observe_real(&run, a, count);
    }
    report_real("a", a, count);
    return finish(&run);
}
