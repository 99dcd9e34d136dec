/* y = A x with A in compressed sparse rows: bounds and addresses depend on the data. */
#include "suite.h"

KERNEL void sparse_product(int n, const int32_t *start, const int32_t *column, const double *value, const double *x,
                           double *y)
{
    for (int i = 0; i < n; i++) {
        double sum = 0;
        for (int k = start[i]; k < start[i + 1]; k++)
            sum += value[k] * x[column[k]];
        y[i] = sum;
    }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 194);
    int n = first_size(&run, 200003), most = 47, times = next_size(&run, 10);
    int32_t *start = integers(n + 1, 1), *column = integers((size_t)n * most, 2);
    double *value = reals((size_t)n * most, 3), *x = reals(n, 4), *y = reals(n, 5);
    uint64_t state = 6;
    int total = 0;
    for (int i = 0; i < n; i++) {
        int length = start[i] % most;
        start[i] = total;
        for (int k = 0; k < length; k++, total++) {
            state = step(state);
            column[total] = (int32_t)((state >> 33) % n);
        }
    }
    start[n] = total;
    for (int r = 0; r < run.repetitions; r++) {
        x[r % n] += 0.25;
        tick(&run);
        for (int time = 0; time < times; time++)
            sparse_product(n, start, column, value, x, y);
        tock(&run);
        observe_real(&run, y, n);
    }
    report_real("y", y, n);
    return finish(&run);
}
