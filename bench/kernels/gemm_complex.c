/* C += A B of complex numbers, pairs of floats. */
#include "suite.h"

struct complex_number {
    float re, im;
};

KERNEL void gemm(int n, struct complex_number a[n][n], struct complex_number b[n][n], struct complex_number c[n][n])
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            for (int k = 0; k < n; k++) {
                c[i][j].re += a[i][k].re * b[k][j].re - a[i][k].im * b[k][j].im;
                c[i][j].im += a[i][k].re * b[k][j].im + a[i][k].im * b[k][j].re;
            }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 53);
    int n = first_size(&run, 641);
    size_t count = (size_t)n * n;
    float *a = singles(2 * count, 1), *b = singles(2 * count, 2), *c = singles(2 * count, 3);
    for (int r = 0; r < run.repetitions; r++) {
        memset(c, 0, 2 * count * sizeof *c);
        a[r % count] += 0.25f;
        tick(&run);
        gemm(n, (struct complex_number (*)[n])a, (struct complex_number (*)[n])b, (struct complex_number (*)[n])c);
        tock(&run);
        observe_single(&run, c, 2 * count);
    }
    report_single("c", c, 2 * count);
    return finish(&run);
}
