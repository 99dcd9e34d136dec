/* Rows are published one by one by a release store; a thread that is started later takes them. */
#include "witness.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define N 400
/* Rows are published one by one by a release store (C11: no data race); a thread that is started later takes them. */
static double a[N][N], b[N][N], c[N][N], want[N][N];
static atomic_int ready;                               /* rows below it are complete */
__attribute__((noinline)) void work(int n) {
    for (int i = 0; i < n; i++) {
        atomic_store_explicit(&ready, i, memory_order_release);
        for (int j = 0; j < n; j++) {
            double s = 0;
            for (int k = 0; k < n; k++) s += a[i][k] * b[k][j];
            c[i][j] = s;
        }
    }
}
static atomic_int over, there; static long wrong;
static void *taker(void *p) {
    there = 1;
    for (int taken = 0; !atomic_load(&over); ) {
        int n = atomic_load_explicit(&ready, memory_order_acquire);
        if (n < taken) taken = 0;
        for (; taken < n; taken++) wrong += memcmp(c[taken], want[taken], sizeof c[taken]) != 0;
    }
    return 0;
}
int main(int argc, char **argv) {
    for (int i = 0; i < N * N; i++) a[0][i] = i % 1013, b[0][i] = i % 997;
    work(N); memcpy(want, c, sizeof c);
    witness(work);
    for (int r = 0; r < 3 || awaited(); r++) work(N);
    acts();
    for (int r = 0; r < 10; r++) {
        pthread_t id;
        memset(c, 0, sizeof c); ready = over = there = 0;
        pthread_create(&id, 0, taker, 0);
        while (!there);
        work(N);
        over = 1; pthread_join(id, 0);
    }
    printf("%ld rows taken that were not complete\n", wrong);
    return 0;
}
