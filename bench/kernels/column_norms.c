/* Mean and sum of squares of every column, column after column, then the columns scaled. */
#include "suite.h"

KERNEL void normalise(int n, int m, float *x, float *mean, float *square)
{
    for (int j = 0; j < m; j++) {
        float sum = 0, squares = 0;
        for (int i = 0; i < n; i++) {
            sum += x[i * m + j];
            squares += x[i * m + j] * x[i * m + j];
        }
        mean[j] = sum / n;
        square[j] = squares / n;
        for (int i = 0; i < n; i++)
            x[i * m + j] = (x[i * m + j] - mean[j]) * (1.25f - square[j]);
    }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 156);
    int n = first_size(&run, 4099), m = next_size(&run, 4001);
    size_t count = (size_t)n * m;
    float *x = singles(count, 1), *mean = singles(m, 2), *square = singles(m, 3);
    for (int r = 0; r < run.repetitions; r++) {
        fill_single(x, count, r);
        tick(&run);
        normalise(n, m, x, mean, square);
        tock(&run);
        observe_single(&run, x, count);
    }
    report_single("mean", mean, m);
    report_single("x", x, count);
    return finish(&run);
}
