/* L U in place, block by block: the trailing update is a product from a shared library, called with ever smaller
   sizes. */
#include "suite.h"

void library_gemm(int n, int m, int k, const double *a, int lda, const double *b, int ldb, double *c, int ldc);

#define BLOCK 61

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

static void blocked_lu(int n, double *a)
{
    for (int start = 0; start < n; start += BLOCK) {
        int end = smaller(start + BLOCK, n), rest = n - end;
        for (int k = start; k < end; k++)
            for (int i = k + 1; i < n; i++) {
                a[(size_t)i * n + k] /= a[(size_t)k * n + k];
                for (int j = k + 1; j < end; j++)
                    a[(size_t)i * n + j] -= a[(size_t)i * n + k] * a[(size_t)k * n + j];
            }
        for (int k = start; k < end; k++)
            for (int i = k + 1; i < end; i++)
                for (int j = end; j < n; j++)
                    a[(size_t)i * n + j] -= a[(size_t)i * n + k] * a[(size_t)k * n + j];
        library_gemm(rest, rest, end - start, a + (size_t)end * n + start, n, a + (size_t)start * n + end, n,
                     a + (size_t)end * n + end, n);
    }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 55);
    int n = first_size(&run, 1223);
    size_t count = (size_t)n * n;
    double *a = reals(count, 1), *saved = reals(count, 1);
    for (int i = 0; i < n; i++)
        saved[(size_t)i * n + i] = n;
    for (int r = 0; r < run.repetitions; r++) {
        saved[0] += 0.25;
        memcpy(a, saved, count * sizeof *a);
        tick(&run);
        blocked_lu(n, a);
        tock(&run);
        observe_real(&run, a, count);
    }
    report_real("lu", a, count);
    return finish(&run);
}
