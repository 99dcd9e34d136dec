/* A matrix product while a second thread runs: memopt must leave it alone. usage: program [n] */
#include <pthread.h>
#include <stdatomic.h>

#include "matrix.h"

static atomic_int stop;

static void *count_steps(void *steps)
{
    while (!stop)
        ++*(volatile long *)steps;
    return 0;
}

void dgemm(int n, REAL *a, REAL *b, REAL *c)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            for (int k = 0; k < n; k++)
                c[i * n + j] += a[i * n + k] * b[k * n + j];
}

int main(int argc, char **argv)
{
    int n = parse_size(argc > 1 ? argv[1] : "512");
    size_t count = (size_t)n * n;
    REAL *a = allocate(count), *b = allocate(count), *c = allocate(count);
    fill(a, count, 1);
    fill(b, count, 2);
    fill(c, count, 3);
    pthread_t thread;
    long steps = 0;
    if (pthread_create(&thread, 0, count_steps, &steps))
        return 1;
    double start = now();
    dgemm(n, a, b, c);
    fprintf(stderr, "seconds %.6f\n", now() - start);
    stop = 1;
    pthread_join(thread, 0);
    print_matrix(c, n, 0);
    printf("other thread ran: %d\n", steps > 0);
    return 0;
}
