/* A thread is cancelled in the middle of the nest; the others go on. */
#include "witness.h"
#include <pthread.h>
#define N 280
__attribute__((noinline)) void product(double *c, const double *a, const double *b, long n) {
    for (long i = 0; i < n; i++)
        for (long j = 0; j < n; j++) {
            double s = 0;
            for (long k = 0; k < n; k++) s += a[i * n + k] * b[k * n + j];
            c[i * n + j] = s;
        }
}
static double a[N * N], b[N * N], c[2][N * N], want[N * N];
static void *endless(void *p) {
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, 0);
    for (;;) product(c[1], a, b, N);
}
int main(int argc, char **argv) {
    long wrong = 0;
    for (int i = 0; i < N * N; i++) a[i] = i * 7919 % 1013, b[i] = i * 104729 % 997;
    witness(product);
    product(want, a, b, N);
    for (int r = 0; r < 3 || awaited(); r++) product(c[0], a, b, N);
    acts();
    for (int r = 0; r < 12; r++) {
        pthread_t id;
        pthread_create(&id, 0, endless, 0);
        usleep(3000 + 900 * r);
        memset(c[0], 0, sizeof c[0]);
        product(c[0], a, b, N);
        wrong += memcmp(c[0], want, sizeof want) != 0;
        pthread_cancel(id);
        pthread_join(id, 0);
        memset(c[0], 0, sizeof c[0]);
        product(c[0], a, b, N);
        wrong += memcmp(c[0], want, sizeof want) != 0;
    }
    printf("%ld wrong\n", wrong);
    return 0;
}
