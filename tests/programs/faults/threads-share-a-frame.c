/* A product by many short calls; later two or more threads, each on matrices of its own. */
#include "witness.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define N 48
/* a product by many short calls; later two or more threads, each on matrices of its own */
__attribute__((noinline)) void product(double *c, const double *a, const double *b, long n) {
    for (long i = 0; i < N; i++) {
        long j = n;
        do {
            double s = 0;
            long k = n;
            do { s += a[i * N + k - 1] * b[(k - 1) * N + j - 1]; } while (--k);
            c[i * N + j - 1] = s;
        } while (--j);
    }
}
struct work { double a[N * N], b[N * N], c[N * N], first[N * N]; long wrong, calls; int alone; };
static void fill(struct work *w, int salt) {
    for (int i = 0; i < N * N; i++) w->a[i] = (i * 7919 + salt) % 1013, w->b[i] = (i * 104729 + salt) % 997;
    product(w->first, w->a, w->b, N);
}
static void *thread(void *p) {
    struct work *w = p;
    for (long r = 0; r < w->calls || (w->alone && awaited()); r++) {
        product(w->c, w->a, w->b, N);
        w->wrong += memcmp(w->c, w->first, sizeof w->c) != 0;
        w->c[r % (N * N)] = -1;
    }
    return 0;
}
#define MOST 4
int main(int argc, char **argv) {
    struct work *w[MOST];
    pthread_t id[MOST];
    long calls = argc > 1 ? atol(argv[1]) : 5000;
    int threads = argc > 2 ? atoi(argv[2]) : 2;
    witness(product);
    for (int t = 0; t < threads; t++) w[t] = aligned_alloc(4096, (sizeof *w[0] + 4095) & -4096L), memset(w[t], 0, sizeof *w[t]), fill(w[t], t * 17), w[t]->calls = calls;
    w[0]->alone = 1;
    thread(w[0]);
    w[0]->alone = 0;
    acts();
    printf("alone: %ld wrong\n", w[0]->wrong); fflush(stdout);
    for (int t = 0; t < threads; t++) w[t]->wrong = 0, w[t]->calls = 2 * calls, pthread_create(&id[t], 0, thread, w[t]);
    printf("together:");
    for (int t = 0; t < threads; t++) pthread_join(id[t], 0), printf(" %ld", w[t]->wrong);
    puts(" wrong");
    return 0;
}
