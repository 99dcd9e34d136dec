/* Threads are started while another is in the middle of the nest, which is long; each works on matrices of its own. */
#include "witness.h"
#include <pthread.h>
#define N 280
#define MOST 4
__attribute__((noinline)) void product(double *c, const double *a, const double *b, long n) {
    for (long i = 0; i < n; i++)
        for (long j = 0; j < n; j++) {
            double s = 0;
            for (long k = 0; k < n; k++) s += a[i * N + k] * b[k * N + j];
            c[i * N + j] = s;
        }
}
struct work { double a[N * N], b[N * N], c[N * N], want[N * N]; long n, wrong; };
static void once(struct work *w) {
    memset(w->c, 0, sizeof w->c);
    product(w->c, w->a, w->b, w->n);
    w->wrong += memcmp(w->c, w->want, sizeof w->c) != 0;
}
static void *thread(void *p) {
    for (int r = 0; r < 6; r++) once(p);
    return 0;
}
int main(int argc, char **argv) {
    static struct work w[MOST];
    long wrong = 0;
    witness(product);
    for (int t = 0; t < MOST; t++) {
        w[t].n = t ? N - 40 * t : N;
        for (int i = 0; i < N * N; i++) w[t].a[i] = (i * 7919 + t) % 1013, w[t].b[i] = (i * 104729 + t) % 997;
        product(w[t].want, w[t].a, w[t].b, w[t].n);
    }
    for (int r = 0; r < 3 || awaited(); r++) once(&w[0]);
    acts();
    for (int r = 0; r < 8; r++) {
        pthread_t id[MOST];
        for (int t = 0; t < MOST; t++) {
            pthread_create(&id[t], 0, thread, &w[t]);
            usleep(1000 + 1700 * r);
        }
        for (int t = 0; t < MOST; t++) pthread_join(id[t], 0);
    }
    for (int t = 0; t < MOST; t++) wrong += w[t].wrong;
    printf("%ld wrong\n", wrong);
    return 0;
}
