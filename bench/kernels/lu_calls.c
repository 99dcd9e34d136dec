/* L D L^T with the trailing update in a function of its own, called with one size less each time. */
#include "suite.h"

/* C -= (v / d) v^T on the lower triangle; v is the column left of C. */
KERNEL void update(int n, int lda, double d, double *c)
{
    for (int i = 0; i < n; i++) {
        double factor = c[i * lda - 1] / d;
        for (int j = 0; j <= i; j++)
            c[i * lda + j] -= factor * c[j * lda - 1];
    }
}

static void ldlt(int n, double *a)
{
    for (int k = 0; k < n - 1; k++) {
        double *diagonal = a + (size_t)k * n + k;
        update(n - k - 1, n, *diagonal, diagonal + n + 1);
        for (int i = 1; i < n - k; i++)
            diagonal[(size_t)i * n] /= *diagonal;
    }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 90);
    int n = first_size(&run, 1201);
    size_t count = (size_t)n * n;
    double *a = reals(count, 1), *saved = reals(count, 1);
    for (int i = 0; i < n; i++)
        saved[(size_t)i * n + i] = n;
    for (int r = 0; r < run.repetitions; r++) {
        saved[0] += 0.25;
        memcpy(a, saved, count * sizeof *a);
        tick(&run);
        ldlt(n, a);
        tock(&run);
        observe_real(&run, a, count);
    }
    report_real("ldlt", a, count);
    return finish(&run);
}
