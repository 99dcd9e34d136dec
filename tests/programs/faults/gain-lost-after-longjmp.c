/* A handler leaves the nest by siglongjmp once. New code must be entered in the rounds after that, too. */
#include "witness.h"
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
static sigjmp_buf back;
static void tick(int s) { siglongjmp(back, 1); }
static double cpu(void) { struct timespec t; clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); return t.tv_sec * 1e3 + t.tv_nsec * 1e-6; }
__attribute__((noinline)) static void mm(const double *a, const double *b, double *c, long n) {
    for (long i = 0; i < n; i++)
        for (long j = 0; j < n; j++) {
            double s = 0;
            for (long k = 0; k < n; k++) s += a[i * n + k] * b[k * n + j];
            c[i * n + j] = s;
        }
}
int main(void) {
    long n = 500;
    double *a = calloc(n * n, 8), *b = calloc(n * n, 8), *c = calloc(n * n, 8), t;
    signal(SIGALRM, tick);
    witness(mm);
    for (volatile int i = 0; i < 3 || awaited(); i++) mm(a, b, c, n);
    acts();
    t = cpu();
    for (volatile int i = 0; i < 5; i++) mm(a, b, c, n);
    fprintf(stderr, "before: %.1f ms a call\n", (cpu() - t) / 5);
    if (!sigsetjmp(back, 1)) {
        struct itimerval once = {{0, 0}, {0, 2000}};
        setitimer(ITIMER_REAL, &once, 0);
        for (;;) mm(a, b, c, n);
    }
    t = cpu();
    for (volatile int i = 0; i < 30; i++) mm(a, b, c, n);
    fprintf(stderr, "after: %.1f ms a call\n", (cpu() - t) / 30);
    puts("done");
    return 0;
}
