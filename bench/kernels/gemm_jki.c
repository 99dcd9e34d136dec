/* Matrix product, j-k-i order: the inner loop goes down columns.
   usage: program [n [all]] */
#include "matrix.h"

void dgemm(int n, REAL *a, REAL *b, REAL *c)
{
    for (int j = 0; j < n; j++)
        for (int k = 0; k < n; k++)
            for (int i = 0; i < n; i++)
                c[i * n + j] += a[i * n + k] * b[k * n + j];
}

int main(int argc, char **argv)
{
    int n = parse_size(argc > 1 ? argv[1] : "512");
    size_t count = (size_t)n * n;
    REAL *a = allocate(count), *b = allocate(count), *c = allocate(count);
    fill(a, count, 1);
    fill(b, count, 2);
    fill(c, count, 3);
    double start = now();
    dgemm(n, a, b, c);
    fprintf(stderr, "seconds %.6f\n", now() - start);
    print_matrix(c, n, argc > 2);
    free(a);
    free(b);
    free(c);
    return 0;
}
