/* B = A^T, then A = (A + B) / 2 - the symmetric part, by way of a transposed copy. */
#include "suite.h"

KERNEL void symmetric_part(int n, double a[n][n], double b[n][n])
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            b[j][i] = a[i][j];
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            a[i][j] = 0.5 * (a[i][j] + b[i][j]);
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 105);
    int n = first_size(&run, 2897), times = next_size(&run, 5);
    size_t count = (size_t)n * n;
    double *a = reals(count, 1), *b = reals(count, 2);
    for (int r = 0; r < run.repetitions; r++) {
        a[(size_t)(r + 1) * 7 % count] += 0.25;
        tick(&run);
        for (int time = 0; time < times; time++)
            symmetric_part(n, (double (*)[n])a, (double (*)[n])b);
        tock(&run);
        observe_real(&run, a, count);
    }
    report_real("a", a, count);
    return finish(&run);
}
