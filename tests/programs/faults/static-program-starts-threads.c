/* Cells that the nest never stores to belong to another thread, which is started later. Static, stripped. */
#include "witness.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#define N 400
/* cells that the nest never stores to belong to another thread, which is started later */
__attribute__((noinline)) void product(double *c, const double *a, const double *b, const double *limit, int n) {
    for (int k = 0; k < n; k++)
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++) {
                double t = a[i * N + k] + b[k * N + j];
                if (t < limit[i * N + j]) c[i * N + j] = t;
            }
}
static volatile int stop;
static double *c, *a, *b, *limit;
static void *counter(void *p) {
    long n = 0;
    volatile double *mine = c;
    while (!stop) { for (int i = 0; i < N; i++) mine[i * N] = mine[i * N] + 1; n++; }
    *(long *)p = n;
    return 0;
}
int main(int argc, char **argv) {
    size_t sz = N * N * 8;
    c = calloc(1, sz), a = malloc(sz), b = malloc(sz), limit = malloc(sz);
    for (int i = 0; i < N * N; i++) a[i] = (i * 7919) % 1013, b[i] = (i * 104729) % 997, limit[i] = i % N ? 700 + i % 101 : -1;
    witness(product);
    for (int r = 0; r < 3 || awaited(); r++) product(c, a, b, limit, N);
    acts();
    pthread_t id; long rounds; int wrong = 0;
    pthread_create(&id, 0, counter, &rounds);
    for (int r = 0; r < 30; r++) product(c, a, b, limit, N);
    stop = 1; pthread_join(id, 0);
    for (int i = 0; i < N; i++) wrong += c[i * N] != rounds;
    printf("%d of %d counters wrong\n", wrong, N);
    return 0;
}
