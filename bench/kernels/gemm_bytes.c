/* Products of rows of bytes, summed in 32 bits: distances between descriptors, a quantised layer. */
#include "suite.h"

KERNEL void products(int n, int m, int d, const uint8_t *a, const uint8_t *b, int32_t *c)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++) {
            int32_t sum = 0;
            for (int k = 0; k < d; k++)
                sum += a[i * d + k] * b[j * d + k];
            c[i * m + j] = sum;
        }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 34);
    int n = first_size(&run, 1009), m = next_size(&run, 1013), d = next_size(&run, 1021);
    uint8_t *a = bytes((size_t)n * d, 1), *b = bytes((size_t)m * d, 2);
    int32_t *c = integers((size_t)n * m, 3);
    for (int r = 0; r < run.repetitions; r++) {
        a[r % n] += 1;
        tick(&run);
        products(n, m, d, a, b, c);
        tock(&run);
        observe_integer(&run, c, (size_t)n * m);
    }
    report_integer("c", c, (size_t)n * m);
    return finish(&run);
}
