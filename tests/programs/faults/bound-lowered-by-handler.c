/* A handler lowers a bound that lies in memory; the loop reads it each time. */
#include "witness.h"
#include <signal.h>
#include <sys/time.h>
#define N 512
static double a[N][N], b[N][N], c[N][N];
static volatile long rounds = 1L << 40;
static void lower(int s) {
    static int more = 5; /* ticks: the version has been entered by then */
    if (!(awaited() && !in_place()) && more-- == 0) acts(), rounds = 1;
}
__attribute__((noinline)) void work(void) {
    for (long r = 0; r < rounds; r++)
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++) c[j][i] = a[j][i] * 0.5 + c[j][i] * 0.25 + b[j][i];
}
int main(void) {
    for (int i = 0; i < N * N; i++) a[0][i] = i % 1013, b[0][i] = i % 997;
    witness(work);
    signal(SIGALRM, lower);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 100000}, {0, 100000}}, 0);
    work();
    puts("done");
    return 0;
}
