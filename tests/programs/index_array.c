/* A matrix product that finds the rows of b through an index array: addresses depend on data. usage: program [n] */
#include "matrix.h"

void dgemm(int n, REAL *a, REAL *b, REAL *c, const int *row)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            for (int k = 0; k < n; k++)
                c[i * n + j] += a[i * n + k] * b[row[k] * n + j];
}

int main(int argc, char **argv)
{
    int n = parse_size(argc > 1 ? argv[1] : "512");
    size_t count = (size_t)n * n;
    REAL *a = allocate(count), *b = allocate(count), *c = allocate(count);
    int *row = malloc((size_t)n * sizeof *row);
    if (!row)
        return 1;
    fill(a, count, 1);
    fill(b, count, 2);
    fill(c, count, 3);
    for (int k = 0; k < n; k++)
        row[k] = (int)((k * 7919L + 13) % n);
    double start = now();
    dgemm(n, a, b, c, row);
    fprintf(stderr, "seconds %.6f\n", now() - start);
    print_matrix(c, n, 0);
    return 0;
}
