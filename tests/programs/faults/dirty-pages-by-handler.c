/* A SIGSEGV handler that is installed after the nest was replaced notes which pages are stored to. */
#include "witness.h"
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#define N 512
/* pages that are written are noted by a handler that is installed later (garbage collectors, checkpoints do that) */
__attribute__((noinline)) void relax(double *c, const double *a, const double *b, int n) {
    for (int k = 0; k < n; k++)
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++) {
                double t = a[i * N + k] + b[k * N + j];
                if (t < c[i * N + j]) c[i * N + j] = t;
            }
}
static int dirty, first = -1; static double *c;
static void note(int s, siginfo_t *i, void *u) {
    char *p = (char *)((unsigned long)i->si_addr & -4096L);
    if (first < 0) first = (p - (char *)c) / 4096;
    dirty++;
    mprotect(p, 4096, PROT_READ | PROT_WRITE);
}
int main(int argc, char **argv) {
    size_t sz = N * N * 8;
    c = mmap(0, sz, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    double *a = malloc(sz), *b = malloc(sz);
    for (int i = 0; i < N * N; i++) c[i] = 1e9, a[i] = (i * 7919) % 1013, b[i] = (i * 104729) % 997;
    witness(relax);
    for (int r = 0; r < 3 || awaited(); r++) { relax(c, a, b, N); for (int i = 0; i < N * N; i++) c[i] += 1e3; }
    for (int i = 0; i < N * N; i++) c[i] = i / N % 64 ? -1e9 : 1e9;    /* every 64th row changes */
    acts();
    struct sigaction act = {.sa_sigaction = note, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &act, 0);
    mprotect(c, sz, PROT_READ);
    relax(c, a, b, N);
    printf("%d pages written, the first was %d\n", dirty, first);
    return 0;
}
