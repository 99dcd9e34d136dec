/* A program forbids itself to read the time-stamp counter once it is warm. */
#include "witness.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#define N 300
/* a program that forbids itself to read the time-stamp counter (prctl(2), PR_SET_TSC), once it is set up */
double a[N][N], b[N][N], c[N][N];
__attribute__((noinline)) void product(int n) {
    for (int i = 0; i < n; i++) for (int j = 0; j < n; j++) { double s = 0; for (int k = 0; k < n; k++) s += a[i][k] * b[k][j]; c[i][j] = s; }
    __asm__ volatile("" ::: "memory");
}
int main(int argc, char **argv) {
    for (int i = 0; i < N * N; i++) a[0][i] = i % 7, b[0][i] = i % 9;
    witness(product);
    for (int r = 0; r < 3 || awaited(); r++) product(N);
    acts();
    prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
    product(N);
    printf("%a\n", c[5][7]);
    return 0;
}
