/* A profiler of the program's own unwinds by frame pointers. */
#include "witness.h"
#define _GNU_SOURCE
#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <ucontext.h>
#define N 300
/* a profiler of its own: samples whose callers do not lead to main. Built with frame pointers */
double a[N][N], b[N][N], c[N][N];
static volatile long samples, lost; static unsigned long low, high;
__attribute__((noinline)) void product(int n) {
    for (int i = 0; i < n; i++) for (int j = 0; j < n; j++) { double s = 0; for (int k = 0; k < n; k++) s += a[i][k] * b[k][j]; c[i][j] = s; } __asm__ volatile("" ::: "memory");
}
int main(int, char **);
static void handler(int s, siginfo_t *i, void *u) {
    unsigned long *fp = (void *)((ucontext_t *)u)->uc_mcontext.gregs[REG_RBP];
    int found = 0;
    for (int n = 0; n < 64 && (unsigned long)fp > low && (unsigned long)fp < high && !((unsigned long)fp & 7); n++, fp = (void *)fp[0])
        found |= fp[1] >= (unsigned long)main && fp[1] < (unsigned long)main + 8000;
    samples++; lost += !found;
}
int main(int argc, char **argv) {
    char here; low = (unsigned long)&here - (1 << 16); high = (unsigned long)&here + 65536;
    for (int i = 0; i < N * N; i++) a[0][i] = i % 7, b[0][i] = i % 9;
    struct sigaction act = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGPROF, &act, 0);
    struct itimerval t = {{0, 2000}, {0, 2000}};
    setitimer(ITIMER_PROF, &t, 0);
    witness(product);
    for (int r = 0; r < 3 || awaited(); r++) product(N);
    acts();
    samples = lost = 0;
    for (int r = 0; r < 200; r++) product(N);
    memset(&t, 0, sizeof t); setitimer(ITIMER_PROF, &t, 0);
    printf("%s\n", lost * 50 > samples ? "many samples have no caller" : "samples have callers");
    fprintf(stderr, "%ld of %ld lost\n", lost, samples);
    return 0;
}
