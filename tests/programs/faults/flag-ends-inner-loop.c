/* A flag in a structure, which the loop over rows reads: it leaves all loops. */
#include "witness.h"
#include <signal.h>
#include <sys/time.h>
#define N 512
struct state { double (*a)[N], (*b)[N], (*c)[N]; volatile int cancelled; };
static struct state state;
static void cancel(int s) {
    static int more = 5; /* ticks: the version has been entered by then */
    if (!(awaited() && !in_place()) && more-- == 0) acts(), state.cancelled = 1;
}
__attribute__((noinline)) long work(struct state *s) {
    for (long r = 0;; r++)
        for (int i = 0; i < N; i++) {
            if (s->cancelled) return r * N + i;
            for (int k = 0; k < N; k++)
                for (int j = 0; j < N; j++) s->c[i][j] += s->a[i][k] * s->b[k][j];
        }
}
int main(void) {
    state.a = calloc(N * N, 8), state.b = calloc(N * N, 8), state.c = calloc(N * N, 8);
    for (int i = 0; i < N * N; i++) state.a[0][i] = i % 1013, state.b[0][i] = i % 997;
    witness(work);
    signal(SIGALRM, cancel);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 100000}, {0, 100000}}, 0);
    puts(work(&state) > 0 ? "cancelled" : "never begun");
    return 0;
}
