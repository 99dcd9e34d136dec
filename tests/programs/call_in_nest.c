/* A matrix product that calls a function of the C library for each product, one so short that the time is the
 * loop's own. usage: program [n] */
#include "matrix.h"

double with_sign(double value, double sign) __asm__("copysign"); /* by a name that no compiler expands inline */

void dgemm(int n, REAL *a, REAL *b, REAL *c)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            for (int k = 0; k < n; k++)
                c[i * n + j] += with_sign(a[i * n + k] * b[k * n + j], a[i * n + k] * b[k * n + j]);
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
    print_matrix(c, n, 0);
    return 0;
}
