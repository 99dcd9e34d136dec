/* Threads run the nest, and a handler that interrupts them there runs it too, on matrices of its own. */
#include "witness.h"
#include <pthread.h>
#include <signal.h>
#define N 100
__attribute__((noinline)) void product(double *c, const double *a, const double *b, long n) {
    for (long i = 0; i < n; i++)
        for (long j = 0; j < n; j++) {
            double s = 0;
            for (long k = 0; k < n; k++) s += a[i * n + k] * b[k * n + j];
            c[i * n + j] = s;
        }
}
struct work { double a[2][N * N], b[2][N * N], c[2][N * N], want[2][N * N]; long wrong; };
static __thread struct work *mine;
static volatile int over;
static void once(struct work *w, int which) {
    memset(w->c[which], 0, sizeof w->c[which]);
    product(w->c[which], w->a[which], w->b[which], N);
    w->wrong += memcmp(w->c[which], w->want[which], sizeof w->c[which]) != 0;
}
static void inside(int s) { if (mine) once(mine, 1); }
static void *thread(void *p) {
    mine = p;
    while (!over) once(p, 0);
    return 0;
}
int main(int argc, char **argv) {
    static struct work w[3];
    pthread_t id[2];
    witness(product);
    for (int t = 0; t < 3; t++)
        for (int v = 0; v < 2; v++) {
            for (int i = 0; i < N * N; i++) w[t].a[v][i] = (i * 7919 + t) % 1013, w[t].b[v][i] = (i * 104729 + v) % 997;
            product(w[t].want[v], w[t].a[v], w[t].b[v], N);
        }
    for (int r = 0; r < 20 || awaited(); r++) once(&w[2], 0);
    signal(SIGUSR1, inside);
    acts();
    for (int t = 0; t < 2; t++) pthread_create(&id[t], 0, thread, &w[t]);
    for (int r = 0; r < 400; r++) {
        usleep(1000);
        pthread_kill(id[r % 2], SIGUSR1);
    }
    over = 1;
    for (int t = 0; t < 2; t++) pthread_join(id[t], 0);
    printf("%ld wrong\n", w[0].wrong + w[1].wrong + w[2].wrong);
    return 0;
}
