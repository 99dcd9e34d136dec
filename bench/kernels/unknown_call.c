/* A matrix through a function chosen at run time, which keeps a state of its own. */
#include "suite.h"

static double previous;
static long calls;

KERNEL double damp(double x)
{
    previous = 0.75 * previous + 0.25 * x;
    calls++;
    return previous;
}

KERNEL double difference(double x)
{
    double result = x - previous;
    previous = x;
    calls++;
    return result;
}

KERNEL void transform(int n, double (*function)(double), double a[n][n])
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            a[i][j] = function(a[i][j]);
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 95);
    int n = first_size(&run, 2011), choice = next_size(&run, 1), times = next_size(&run, 8);
    size_t count = (size_t)n * n;
    double *a = reals(count, 1);
    for (int r = 0; r < run.repetitions; r++) {
        fill_real(a, count, r);
        tick(&run);
        for (int time = 0; time < times; time++)
            transform(n, choice == 1 ? damp : difference, (double (*)[n])a);
        tock(&run);
        observe_real(&run, a, count);
    }
    report_real("a", a, count);
    printf("%ld calls\n", calls);
    return finish(&run);
}
