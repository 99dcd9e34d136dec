/* A stop flag that the nest is given by its address; a handler sets it. */
#include "witness.h"
#include <signal.h>
#include <sys/time.h>
#define N 512
static double a[N][N], b[N][N], c[N][N];
static volatile sig_atomic_t *told;
static void enough(int s) {
    static int more = 5; /* ticks: the version has been entered by then */
    if (!(awaited() && !in_place()) && more-- == 0) acts(), *told = 1;
}
__attribute__((noinline)) void work(volatile sig_atomic_t *stop) {
    do
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++) c[j][i] = a[j][i] * 0.5 + c[j][i] * 0.25 + b[j][i];
    while (!*stop);
}
int main(void) {
    for (int i = 0; i < N * N; i++) a[0][i] = i % 1013, b[0][i] = i % 997;
    told = calloc(1, sizeof *told);
    witness(work);
    signal(SIGALRM, enough);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 100000}, {0, 100000}}, 0);
    work(told);
    puts("done");
    return 0;
}
