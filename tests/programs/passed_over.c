/* Nests with a store or a load under a condition on data. They run again and again until SIGUSR1 comes, by which time
   they have new code. Then the cells that the condition passes over become ones that must not be touched, and the nest
   runs three times more. Prints what it made of the others. usage: program MODE [once], without a signal
     read-only   if (t < c[i][j]) c[i][j] = t: c is read-only, nothing is smaller
     rows        shortest paths in place: the last rows are read-only, nothing in them gets shorter
     dirty       as read-only, but each 64th row changes, and a handler counts the pages that are written
     freed       if (t < limit[i][j]) c[i][j] = t: the lower rows of c are not mapped
     counted     the same: a second thread counts in the first column of c, which is passed over
     minima      as read-only, but a second thread counts in the first column
     loads       if (t < limit[i][j]) c[i][j] = t * x[i][j]: the upper rows of x are not mapped
     integers    as read-only, with 4-byte integers
     ways        floats: one way of a branch stores to c, the other to d: neither may be touched in rows of the other
     page        the last row of c ends at an inaccessible page, in the middle of a vector
     bytes       as freed, with elements of one byte */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef N
#define N 384
#endif
enum { ROW = 512, LONGEST_SECONDS = 280 };
#define SIZE (N * ROW * sizeof(double))
#define AT(x, i, j) (x)[(i) * ROW + (j)]
#define NEST for (int k = 0; k < n; k++) for (int i = 0; i < n; i++) for (int j = 0; j < n; j++)

static volatile sig_atomic_t told, stop;
static const char *mode;
static double *a, *b, *c, *d, *limit, *x;

static void on_word(int number) { (void)number; told = 1; }

__attribute__((noinline)) static void relax(double *c, const double *a, const double *b, int n)
{
    NEST { double t = AT(a, i, k) + AT(b, k, j); if (t < AT(c, i, j)) AT(c, i, j) = t; }
}

__attribute__((noinline)) static void paths(double *c, int n)
{
    NEST if (AT(c, i, k) + AT(c, k, j) < AT(c, i, j)) AT(c, i, j) = AT(c, i, k) + AT(c, k, j);
}

__attribute__((noinline)) static void below(double *c, const double *a, const double *b, const double *limit, int n)
{
    NEST { double t = AT(a, i, k) + AT(b, k, j); if (t < AT(limit, i, j)) AT(c, i, j) = t; }
}

__attribute__((noinline)) static void scaled(double *c, const double *a, const double *b, const double *limit,
                                             const double *x, int n)
{
    NEST { double t = AT(a, i, k) + AT(b, k, j); if (t < AT(limit, i, j)) AT(c, i, j) = t * AT(x, i, j); }
}

__attribute__((noinline)) static void relax_integers(int *c, const int *a, const int *b, int n)
{
    NEST { int t = AT(a, i, k) + AT(b, k, j); if (t < AT(c, i, j)) AT(c, i, j) = t; }
}

__attribute__((noinline)) static void two_ways(float *c, float *d, const float *a, const float *b, const float *limit,
                                               int n)
{
    NEST {
        float t = AT(a, i, k) * AT(b, k, j), most = AT(limit, i, j);
        if (t > most) AT(c, i, j) = t; else if (t < -most) AT(d, i, j) = t;
    }
}

__attribute__((noinline)) static void bytes(uint8_t *c, const uint8_t *a, const uint8_t *b, const uint8_t *limit, int n)
{
    NEST { uint8_t t = AT(a, i, k) + AT(b, k, j); if (t < AT(limit, i, j)) AT(c, i, j) = t; }
}

static int is(const char *name) { return !strcmp(mode, name); }

__attribute__((noinline)) static void run(void)
{
    if (is("rows")) paths(c, N);
    else if (is("freed") || is("counted") || is("page")) below(c, a, b, limit, N);
    else if (is("loads")) scaled(c, a, b, limit, x, N);
    else if (is("integers")) relax_integers((int *)c, (int *)a, (int *)b, N);
    else if (is("ways")) two_ways((float *)c, (float *)d, (float *)a, (float *)b, (float *)limit, N);
    else if (is("bytes")) bytes((uint8_t *)c, (uint8_t *)a, (uint8_t *)b, (uint8_t *)limit, N);
    else relax(c, a, b, N);
}

/* ``last``: as the last runs want it: nothing is to be stored where nothing may be. */
__attribute__((noinline)) static void fill(int last)
{
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            int lower = i >= N / 2, p = (i * 7919 + j * 31) % 1013, q = (i * 104729 + j * 17) % 997;
            if (is("integers")) {
                AT((int *)a, i, j) = p + (last ? 100000 : 0), AT((int *)b, i, j) = q, AT((int *)c, i, j) = 3000 - i;
            } else if (is("ways")) {
                AT((float *)a, i, j) = (last ? lower : j % 2) ? 1 + p : -1 - p;
                AT((float *)b, i, j) = 1 + q, AT((float *)c, i, j) = AT((float *)d, i, j) = 0;
                AT((float *)limit, i, j) = 0.5f;
            } else if (is("bytes")) {
                AT((uint8_t *)a, i, j) = p % 100, AT((uint8_t *)b, i, j) = q % 100, AT((uint8_t *)c, i, j) = 0;
                AT((uint8_t *)limit, i, j) = last && lower ? 0 : 90 + p % 50;
            } else {
                int far = last && (is("read-only") || (is("dirty") && i % 64) || (is("minima") && i % 2));
                int none = last && (is("page") ? i == N - 1 && j >= N - 3 : is("counted") ? j == 0 : lower);
                AT(a, i, j) = p + (far ? 1e5 : 0), AT(b, i, j) = is("minima") && last && !j ? 1e9 : q;
                AT(c, i, j) = is("rows") ? (last && i >= N - N / 4 ? 0 : 1 + p) : is("minima") && !j ? 0 : 5e3;
                AT(limit, i, j) = none ? -1 : 700 + p % 101, AT(x, i, j) = 1 + q;
            }
        }
}

static double *array(void) { return mmap(0, SIZE + 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }

static int written, first = -1;

static void note(int number, siginfo_t *info, void *context)
{
    char *page = (char *)((uintptr_t)info->si_addr & -4096L);
    (void)number, (void)context;
    if (first < 0) first = (int)((page - (char *)c) / 4096);
    written++;
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

static void *count(void *rounds)
{
    volatile double *mine = c;
    while (!stop) {
        for (int i = 0; i < N; i++) AT(mine, i, 0) = AT(mine, i, 0) + 1;
        ++*(long *)rounds;
    }
    return 0;
}

__attribute__((noinline)) static double total(const void *of, size_t rows)
{
    double sum = 0;
    for (size_t i = 0; i < rows; i++)
        for (int j = 0; j < N; j++)
            sum = sum * 0.9999 + (is("integers") ? AT((int *)of, i, j) : is("bytes") ? AT((uint8_t *)of, i, j) :
                                  is("ways") ? AT((float *)of, i, j) : AT((double *)of, i, j));
    return sum;
}

int main(int argc, char **argv)
{
    mode = argc > 1 ? argv[1] : "read-only";
    a = array(), b = array(), c = array(), d = array(), limit = array(), x = array();
    if (is("page")) c = (double *)((char *)c + 4096 - ((N - 1) * ROW + N - 3) * sizeof(double) % 4096);
    told = argc > 2;
    signal(SIGUSR1, on_word);
    alarm(LONGEST_SECONDS);
    fprintf(stderr, "ready %d\n", (int)getpid());
    for (int call = 0; call < 2 || !told; call++) { fill(0); run(); }
    fill(1);
    size_t rows = N, half = N / 2 * ROW * (is("bytes") ? 1 : is("ways") ? 4 : 8);
    pthread_t counter;
    long rounds = 0;
    if (is("read-only") || is("integers") || is("dirty")) {
        if (is("dirty")) sigaction(SIGSEGV, &(struct sigaction){.sa_sigaction = note, .sa_flags = SA_SIGINFO}, 0);
        mprotect(c, SIZE, PROT_READ);
    } else if (is("rows"))
        mprotect(&AT(c, N - N / 4, 0), N / 4 * ROW * 8, PROT_READ);
    else if (is("freed") || is("bytes"))
        munmap((char *)c + half, half), rows = N / 2;
    else if (is("loads"))
        munmap((char *)x + half, half);
    else if (is("ways"))
        mprotect((char *)d + half, half, PROT_NONE), mprotect(c, half, PROT_NONE);
    else if (is("page"))
        mprotect(&AT(c, N - 1, N - 3), 4096, PROT_NONE), rows = N - 1;
    else if (is("counted") || is("minima"))
        pthread_create(&counter, 0, count, &rounds);
    for (int call = 0; call < 3; call++) run();
    int wrong = 0;
    if (rounds || is("counted") || is("minima")) {
        stop = 1;
        pthread_join(counter, 0);
        for (int i = 0; i < N; i++) {
            wrong += AT(c, i, 0) != rounds + (is("counted") ? 5e3 : 0);
            AT(c, i, 0) = 0;
        }
    }
    if (is("ways")) mprotect(c, half, PROT_READ), mprotect((char *)d + half, half, PROT_READ);
    printf("%s: %a %a, %d pages written, the first was %d, %d wrong\n", mode, total(c, rows), total(d, N), written,
           first, wrong);
    return 3;
}
