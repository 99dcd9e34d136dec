/* Matrix product in main on static arrays of a constant size (-DN=...).
   usage: program [all] */
#include "matrix.h"

#ifndef N
#define N 512
#endif

REAL a[N][N], b[N][N], c[N][N];

int main(int argc, char **argv)
{
    (void)argv;
    fill(&a[0][0], (size_t)N * N, 1);
    fill(&b[0][0], (size_t)N * N, 2);
    fill(&c[0][0], (size_t)N * N, 3);
    double start = now();
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            for (int k = 0; k < N; k++)
                c[i][j] += a[i][k] * b[k][j];
    fprintf(stderr, "seconds %.6f\n", now() - start);
    print_matrix(&c[0][0], N, argc > 1);
    return 0;
}
