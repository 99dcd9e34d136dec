/* A large reservation of addresses finds room, whatever memopt has mapped. */
#include "witness.h"
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#define N 300
/* a large reservation of addresses behind the nest */
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
    void *p = mmap(0, 80ul << 40, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    puts(p == MAP_FAILED ? "no room" : "reserved");
    return 0;
}
