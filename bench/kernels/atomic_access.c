/* Row sums of a matrix of whole numbers, added atomically, as code written for several threads does. */
#include "suite.h"

KERNEL void row_sums(int n, int m, const int32_t *a, int64_t *sum)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++)
            __atomic_fetch_add(&sum[i], a[i * m + j], __ATOMIC_RELAXED);
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 79);
    int n = first_size(&run, 5003), m = next_size(&run, 6007);
    int32_t *a = integers((size_t)n * m, 1);
    int64_t *sum = wides(n, 2);
    for (int r = 0; r < run.repetitions; r++) {
        tick(&run);
        row_sums(n, m, a, sum);
        tock(&run);
        observe_wide(&run, sum, n);
    }
    report_wide("sum", sum, n);
    return finish(&run);
}
