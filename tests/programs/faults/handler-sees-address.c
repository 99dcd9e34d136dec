/* A profiler of the program's own looks at where it was interrupted. */
#include "witness.h"
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <ucontext.h>
extern char __executable_start, etext;
static volatile long inside, outside;
static char *libc_low, *libc_high;
static void tick(int s, siginfo_t *i, void *u) {
    char *ip = (char *)((ucontext_t *)u)->uc_mcontext.gregs[REG_RIP];
    if ((ip >= &__executable_start && ip < &etext) || (ip >= libc_low && ip < libc_high)) inside++;
    else outside++;
}
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
    double *a = calloc(n * n, 8), *b = calloc(n * n, 8), *c = calloc(n * n, 8);
    libc_low = (char *)((uintptr_t)printf - (4 << 20)), libc_high = (char *)((uintptr_t)printf + (4 << 20));
    sigaction(SIGPROF, &(struct sigaction){.sa_sigaction = tick, .sa_flags = SA_SIGINFO | SA_RESTART}, 0);
    struct itimerval it = {{0, 4000}, {0, 4000}};
    setitimer(ITIMER_PROF, &it, 0);
    witness(mm);
    for (int i = 0; i < 3 || awaited(); i++) mm(a, b, c, n);
    acts();
    for (int i = 0; i < 20; i++) mm(a, b, c, n);
    printf("samples outside the program: %ld\n", outside);
    return outside > 0;
}
