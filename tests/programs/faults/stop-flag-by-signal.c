/* SIGALRM ends the work: the handler sets a flag that the loop reads each time. */
#include "witness.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>
#define N 512
/* SIGALRM ends the work: the handler sets the number of rounds, which the loop reads each time */
static double a[N][N], b[N][N], c[N][N];
volatile sig_atomic_t stop; long rounds = 1L << 40;
static void enough(int s) {
    static int more = 5; /* ticks: the version has been entered by then */
    if (!(awaited() && !in_place()) && more-- == 0) acts(), stop = 1;
}
__attribute__((noinline)) void work(void) {
    for (long r = 0; r < rounds && !stop; r++)
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++) c[j][i] = a[j][i] * 0.5 + c[j][i] * 0.25 + b[j][i];
}
int main(void) {
    for (int i = 0; i < N * N; i++) a[0][i] = i % 1013, b[0][i] = i % 997;
    signal(SIGALRM, enough);
    witness(work);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 100000}, {0, 100000}}, 0);
    work();
    puts("done");
    return 0;
}
