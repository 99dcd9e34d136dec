/* A thread that is started once new code is in place sets the flag that the loop reads each time. */
#include "witness.h"
#include <pthread.h>
#include <stdatomic.h>
#define N 512
static double a[N][N], b[N][N], c[N][N];
static atomic_int stop;
__attribute__((noinline)) void work(long rounds) {
    for (long r = 0; r < rounds && !atomic_load_explicit(&stop, memory_order_relaxed); r++)
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++) c[j][i] = a[j][i] * 0.5 + c[j][i] * 0.25 + b[j][i];
}
static void *later(void *p) {
    usleep(300000);
    atomic_store(&stop, 1);
    return 0;
}
int main(void) {
    pthread_t id;
    for (int i = 0; i < N * N; i++) a[0][i] = i % 1013, b[0][i] = i % 997;
    witness(work);
    for (int r = 0; r < 3 || awaited(); r++) work(40);
    acts();
    pthread_create(&id, 0, later, 0);
    work(1L << 40);
    pthread_join(id, 0);
    puts("done");
    return 0;
}
