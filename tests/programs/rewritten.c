/* A product of static arrays and a sweep over arrays from the heap, for rewriting. usage: program SIZE REPETITIONS [threads]
   With "threads", four threads go through the sweep at once, each on arrays of its own. Prints a sum of all results. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 700 };
static double a[MOST][MOST], b[MOST][MOST], c[MOST][MOST];

__attribute__((noinline)) static void product(int n)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int k = 0; k < n; k++)
                sum += a[i][k] * b[k][j];
            c[i][j] += sum;
        }
}

__attribute__((noinline)) static void sweep(double *restrict to, const double *restrict from, int n)
{
    for (int j = 1; j < n - 1; j++)
        for (int i = 1; i < n - 1; i++)
            to[i * n + j] = (from[(i - 1) * n + j] + from[(i + 1) * n + j] + from[i * n + j - 1]) * 0.25;
}

struct work { int n, repetitions; double sum; };

static void *sweeps(void *argument)
{
    struct work *work = argument;
    size_t cells = (size_t)work->n * work->n;
    double *one = malloc(cells * sizeof *one), *two = malloc(cells * sizeof *two);
    for (size_t i = 0; i < cells; i++)
        one[i] = two[i] = (double)(i % 13);
    for (int r = 0; r < work->repetitions; r++) {
        sweep(two, one, work->n);
        sweep(one, two, work->n);
    }
    work->sum = 0;
    for (size_t i = 0; i < cells; i++)
        work->sum += one[i] * (double)(i % 7);
    free(one);
    free(two);
    return 0;
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 100, repetitions = argc > 2 ? atoi(argv[2]) : 1;
    double sum = 0;
    if (n < 1 || n > MOST)
        return 2;
    if (argc > 3 && !strcmp(argv[3], "threads")) {
        pthread_t threads[4];
        struct work work[4];
        for (int t = 0; t < 4; t++) {
            work[t] = (struct work){n + t, repetitions, 0};
            pthread_create(&threads[t], 0, sweeps, &work[t]);
        }
        for (int t = 0; t < 4; t++) {
            pthread_join(threads[t], 0);
            sum += work[t].sum;
        }
    } else {
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++)
                a[i][j] = i % 7 - 2.5, b[i][j] = j % 11 - 4.25;
        for (int r = 0; r < repetitions; r++)
            product(n);
        struct work work = {n, 8 * repetitions, 0};
        sweeps(&work);
        sum = work.sum;
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++)
                sum += c[i][j] * (i % 5);
    }
    printf("%.17g\n", sum);
    return 0;
}
