/* C = A B of 32-bit integers, modulo 2**32. */
#include "suite.h"

KERNEL void gemm(int n, uint32_t a[n][n], uint32_t b[n][n], uint32_t c[n][n])
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            uint32_t sum = 0;
            for (int k = 0; k < n; k++)
                sum += a[i][k] * b[k][j];
            c[i][j] = sum;
        }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 30);
    int n = first_size(&run, 907);
    size_t count = (size_t)n * n;
    int32_t *a = integers(count, 1), *b = integers(count, 2), *c = integers(count, 3);
    for (int r = 0; r < run.repetitions; r++) {
        a[r % count] += 1;
        tick(&run);
        gemm(n, (uint32_t (*)[n])a, (uint32_t (*)[n])b, (uint32_t (*)[n])c);
        tock(&run);
        observe_integer(&run, c, count);
    }
    report_integer("c", c, count);
    return finish(&run);
}
