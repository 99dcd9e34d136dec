/* A matrix product in a program that handles SIGSEGV itself, and goes on after it. usage: program [n] */
#include <setjmp.h>
#include <signal.h>

#include "matrix.h"

static sigjmp_buf back;

static void on_fault(int number)
{
    (void)number;
    siglongjmp(back, 1);
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
    signal(SIGSEGV, on_fault);
    volatile int caught = 0;
    volatile int *volatile nowhere = 0;
    if (sigsetjmp(back, 1) == 0)
        *nowhere = 1;
    else
        caught = 1;
    double start = now();
    dgemm(n, a, b, c);
    fprintf(stderr, "seconds %.6f\n", now() - start);
    print_matrix(c, n, 0);
    printf("caught %d\n", caught);
    return 0;
}
