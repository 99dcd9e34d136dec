/* A program that checks its own code, as licence and integrity checks do, sees the patch. */
#include "witness.h"
int main(int, char **);
#include <stdio.h>
#include <stdlib.h>
#define N 300
/* a program that checks its own code (licence and integrity checks do) */
double a[N][N], b[N][N], c[N][N];
__attribute__((noinline)) void product(int n) {
    for (int i = 0; i < n; i++) for (int j = 0; j < n; j++) { double s = 0; for (int k = 0; k < n; k++) s += a[i][k] * b[k][j]; c[i][j] = s; }
}
extern char __executable_start, etext;
static unsigned sum(void) { unsigned h = 0; for (volatile unsigned char *p = (void *)main; (char *)p < &etext; p++) h = h * 31 + *p; for (volatile unsigned char *p = (void *)product; p < (unsigned char *)product + 120; p++) h = h * 31 + *p; return h; }
int main(int argc, char **argv) {
    for (int i = 0; i < N * N; i++) a[0][i] = i % 7, b[0][i] = i % 9; unsigned before = sum();
    witness(product);
    for (int r = 0; r < 3 || awaited(); r++) product(N);
    acts();
    printf("%s\n", sum() == before ? "code is what it was" : "code has been changed");
    return 0;
}
