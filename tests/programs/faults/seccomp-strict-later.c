/* A program shuts itself in (seccomp, strict) after so many rounds, while memopt may be at work on its nest. */
#include "witness.h"
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#define N 300
/* a program that shuts itself in (seccomp, strict) while memopt is at work on its loop */
double a[N][N], b[N][N], c[N][N];
__attribute__((noinline)) void product(int n) {
    for (int i = 0; i < n; i++) for (int j = 0; j < n; j++) { double s = 0; for (int k = 0; k < n; k++) s += a[i][k] * b[k][j]; c[i][j] = s; }
    __asm__ volatile("" ::: "memory");
}
int main(int argc, char **argv) {
    int before = argc > 1 ? atoi(argv[1]) : 40;
    char text[64];
    for (int i = 0; i < N * N; i++) a[0][i] = i % 7, b[0][i] = i % 9;
    witness(product);
    for (int r = 0; before < 0 ? r < 3 || awaited() : r < before; r++) product(N);
    acts();
    prctl(PR_SET_SECCOMP, 1);
    for (int r = 0; r < 60; r++) product(N);
    snprintf(text, sizeof text, "%a\n", c[5][7]);
    write(1, text, strlen(text));
    syscall(SYS_exit, 0);
}
