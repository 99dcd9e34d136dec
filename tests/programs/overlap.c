/* A matrix product whose result lies over one of its operands. usage: program a|b [n [offset in elements]] */
#include "matrix.h"

void dgemm(int n, REAL *a, REAL *b, REAL *c)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            for (int k = 0; k < n; k++)
                c[i * n + j] += a[i * n + k] * b[k * n + j];
}

int main(int argc, char **argv)
{
    int over_b = argc > 1 && argv[1][0] == 'b';
    int n = parse_size(argc > 2 ? argv[2] : "512");
    long offset = argc > 3 ? atol(argv[3]) : 0;
    size_t count = (size_t)n * n;
    if (offset < 0 || (size_t)offset > count) {
        fprintf(stderr, "%ld: not an offset from 0 to %zu\n", offset, count);
        return 2;
    }
    REAL *a = allocate(2 * count), *b = allocate(2 * count);
    fill(a, 2 * count, 1);
    fill(b, 2 * count, 2);
    REAL *c = (over_b ? b : a) + offset;
    /* The result feeds itself: keep it finite. */
    for (size_t i = 0; i < 2 * count; i++) {
        a[i] /= (REAL)n;
        b[i] /= (REAL)n;
    }
    double start = now();
    dgemm(n, a, b, c);
    fprintf(stderr, "seconds %.6f\n", now() - start);
    print_matrix(c, n, 0);
    printf("a %016llx b %016llx\n", (unsigned long long)hash(HASH_START, a, 2 * count),
           (unsigned long long)hash(HASH_START, b, 2 * count));
    return 0;
}
