/* A product whose result is volatile and lies in memory shared with other processes: every store may be seen. */
#include <sys/mman.h>

#include "suite.h"

KERNEL void gemm(int n, const double *a, const double *b, volatile double *c)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            for (int k = 0; k < n; k++)
                c[i * n + j] += a[i * n + k] * b[k * n + j];
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 20);
    int n = first_size(&run, 613);
    size_t count = (size_t)n * n;
    double *a = reals(count, 1), *b = reals(count, 2);
    double *c = (double *)mmap(NULL, count * sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (c == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    for (int r = 0; r < run.repetitions; r++) {
        fill_real(c, count, r);
        tick(&run);
        gemm(n, a, b, c);
        tock(&run);
        observe_real(&run, c, count);
    }
    report_real("c", c, count);
    return finish(&run);
}
