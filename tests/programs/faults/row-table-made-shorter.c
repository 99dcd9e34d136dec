/* A table of pointers to rows is made shorter; the nest needs no more of them. */
#include "witness.h"
#include <stdio.h>
#include <stdlib.h>
#define N 300
#define ROWS 40000
/* a table of row pointers that is made shorter when it turns out how many rows are needed */
__attribute__((noinline)) void product(double **c, double **a, double **b, int n) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double s = 0;
            for (int k = 0; k < n; k++) s += a[i][k] * b[k][j];
            c[i][j] = s;
        }
}
static double **table(void) {
    double **rows = malloc(ROWS * sizeof *rows), *all = calloc((size_t)ROWS * N, 8);
    for (int i = 0; i < ROWS; i++) rows[i] = all + (size_t)i * N;
    return rows;
}
int main(int argc, char **argv) {
    double **a = table(), **b = table(), **c = table();
    for (int i = 0; i < N; i++) for (int j = 0; j < N; j++) a[i][j] = (i * N + j) % 1013, b[i][j] = (i * N + j) % 997;
    witness(product);
    for (int r = 0; r < 3 || awaited(); r++) product(c, a, b, N);
    acts();
    a = realloc(a, N * sizeof *a), b = realloc(b, N * sizeof *b), c = realloc(c, N * sizeof *c);
    product(c, a, b, N);
    double h = 0; for (int i = 0; i < N; i++) for (int j = 0; j < N; j++) h += c[i][j] * (j % 7);
    printf("%a\n", h);
    return 0;
}
