/* Products of tall matrices with small ones, then very many of matrices with three rows: what pays for the first costs
 * more than it gains for the second. usage: program [tall products] [flat products] */
#include "matrix.h"

enum { INNER = 24, TALL = 4000 };

__attribute__((noipa)) void multiply(int rows, REAL *a, REAL *b, REAL *c)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < INNER; j++)
            for (int k = 0; k < INNER; k++)
                c[i * INNER + j] += a[i * INNER + k] * b[k * INNER + j];
}

int main(int argc, char **argv)
{
    int tall = argc > 1 ? atoi(argv[1]) : 60, flat = argc > 2 ? atoi(argv[2]) : 100000;
    size_t count = (size_t)TALL * INNER;
    REAL *a = allocate(count), *b = allocate(INNER * INNER), *c = allocate(count);
    fill(a, count, 1);
    fill(b, INNER * INNER, 2);
    fill(c, count, 3);
    for (int i = 0; i < tall; i++)
        multiply(TALL, a, b, c);
    for (int i = 0; i < flat; i++)
        multiply(3, a, b, c);
    for (int i = 0; i < TALL; i += 97)
        printf("%a\n", (double)c[i * INNER + i % INNER]);
    printf("%a\n", (double)c[INNER]);
    return 0;
}
