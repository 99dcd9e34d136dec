/* Each row has a flag, stored by a release store behind it; a thread that is started later takes rows that are ready. */
#include "witness.h"
#include <pthread.h>
#include <stdatomic.h>
#define N 400
static double a[N][N], b[N][N], c[N][N], want[N][N];
static atomic_int ready[N], over, there;
static long wrong;
__attribute__((noinline)) void work(int n) {
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) {
            double s = 0;
            for (int k = 0; k < n; k++) s += a[i][k] * b[k][j];
            c[i][j] = s;
        }
        atomic_store_explicit(&ready[i], 1, memory_order_release);
    }
}
static void *taker(void *p) {
    there = 1;
    for (int i = 0; i < N && !atomic_load(&over);)
        if (atomic_load_explicit(&ready[i], memory_order_acquire)) wrong += memcmp(c[i], want[i], sizeof c[i]) != 0, i++;
    return 0;
}
int main(void) {
    for (int i = 0; i < N * N; i++) a[0][i] = i % 1013, b[0][i] = i % 997;
    work(N);
    memcpy(want, c, sizeof c);
    witness(work);
    for (int r = 0; r < 3 || awaited(); r++) work(N);
    acts();
    for (int r = 0; r < 10; r++) {
        pthread_t id;
        memset(c, 0, sizeof c);
        memset((void *)ready, 0, sizeof ready);
        over = there = 0;
        pthread_create(&id, 0, taker, 0);
        while (!there);
        work(N);
        over = 1;
        pthread_join(id, 0);
    }
    printf("%ld rows taken that were not complete\n", wrong);
    return 0;
}
