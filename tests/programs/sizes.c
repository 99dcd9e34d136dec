/* Nests that come with other sizes at every call, 0 and 1 among them.
 * usage: program triangles|strides|lengths repetitions: sizes in bounds alone, or in the distance of rows too (few of
 * them); lengths: a product for which one version serves all. */
#include <string.h>

#include "matrix.h"

enum { N = 700, FEW = 4 };

/* C -= (v / d) v^T on the lower triangle; v is the column left of C. */
__attribute__((noipa)) void update(int n, int lda, REAL d, REAL *c)
{
    for (int i = 0; i < n; i++) {
        REAL factor = c[i * lda - 1] / d;
        for (int j = 0; j <= i; j++)
            c[i * lda + j] -= factor * c[j * lda - 1];
    }
}

__attribute__((noipa)) void product(int n, const REAL *restrict a, const REAL *restrict b, REAL *restrict c)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            REAL sum = 0;
            for (int k = 0; k < n; k++)
                sum += a[i * n + k] * b[k * n + j];
            c[i * n + j] += sum;
        }
}

__attribute__((noipa)) void multiply(int n, const REAL *restrict a, const REAL *restrict b, REAL *restrict c)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            REAL sum = 0;
            for (int k = 0; k < n; k++)
                sum += a[i * n + k] * b[k * n + j];
            c[i * n + j] = sum;
        }
}

int main(int argc, char **argv)
{
    int triangles = argc < 2 || !strcmp(argv[1], "triangles"), lengths = argc > 1 && !strcmp(argv[1], "lengths");
    int repetitions = argc > 2 ? atoi(argv[2]) : 30;
    size_t count = (size_t)N * N;
    REAL *a = allocate(count), *b = allocate(count), *c = allocate(count);
    fill(a, count, 1);
    fill(b, count, 2);
    fill(c, count, 3);
    for (int r = 0; r < repetitions; r++) {
        if (triangles)
            for (int k = 0; k < N; k++)
                update(N - k - 1, N, 1000, c + (size_t)(k < N - 1 ? k + 1 : k) * (N + 1));
        else if (lengths)
            for (int size = FEW; size >= 0; size--)
                multiply(size ? 61 + 40 * size : r % 3, a, b, c);
        else
            for (int size = FEW; size >= 0; size--)
                product(size ? 120 + 61 * size : r % 3, a, b, c);
        c[r] = (REAL)0.5;
    }
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum = sum * 0.999 + (double)c[i];
    printf("%a %a %a\n", sum, (double)c[N], (double)c[count - 1]);
    return 0;
}
