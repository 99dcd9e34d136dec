/* Triangles whose inner loops end where two pointers meet that both move with the outer loop: program rounds size.
   -DNEST=name selects one, -DREAL=type the elements, -DSIZE=n makes the size a constant. The nest is inlined into a loop
   that calls a function. The last line of the output is a sum of all bits of the arrays. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef REAL
#define REAL double
#endif
typedef REAL real;
typedef real pair __attribute__((vector_size(2 * sizeof(real)), aligned(sizeof(real)), may_alias));
#define INLINED static inline __attribute__((always_inline, unused))

/* C = alpha A A^T + beta C, lower triangle */
INLINED void lower(int n, real alpha, real beta, real c[n][n], real a[n][n], real b[n][n])
{
    (void)b;
    for (int i = 0; i < n; i++) {
        for (int j = 0; j <= i; j++)
            c[i][j] *= beta;
        for (int k = 0; k < n; k++)
            for (int j = 0; j <= i; j++)
                c[i][j] += alpha * a[i][k] * a[j][k];
    }
}

/* the same, upper triangle */
INLINED void upper(int n, real alpha, real beta, real c[n][n], real a[n][n], real b[n][n])
{
    (void)b;
    for (int i = 0; i < n; i++) {
        for (int j = i; j < n; j++)
            c[i][j] *= beta;
        for (int k = 0; k < n; k++)
            for (int j = i; j < n; j++)
                c[i][j] += alpha * a[i][k] * a[j][k];
    }
}

/* C = alpha A B^T + alpha B A^T + beta C, lower triangle */
INLINED void lower_both(int n, real alpha, real beta, real c[n][n], real a[n][n], real b[n][n])
{
    for (int i = 0; i < n; i++) {
        for (int j = 0; j <= i; j++)
            c[i][j] *= beta;
        for (int k = 0; k < n; k++)
            for (int j = 0; j <= i; j++)
                c[i][j] += a[j][k] * alpha * b[i][k] + b[j][k] * alpha * a[i][k];
    }
}

INLINED void upper_both(int n, real alpha, real beta, real c[n][n], real a[n][n], real b[n][n])
{
    for (int i = 0; i < n; i++) {
        for (int j = i; j < n; j++)
            c[i][j] *= beta;
        for (int k = 0; k < n; k++)
            for (int j = i; j < n; j++)
                c[i][j] += a[j][k] * alpha * b[i][k] + b[j][k] * alpha * a[i][k];
    }
}

/* without the diagonal, and without beta */
INLINED void strict(int n, real alpha, real beta, real c[n][n], real a[n][n], real b[n][n])
{
    (void)beta;
    for (int i = 1; i < n; i++)
        for (int k = 0; k < n; k++)
            for (int j = 0; j < i; j++)
                c[i][j] += alpha * a[i][k] * b[j][k];
}

/* pointers in the source; rows from their ends to their beginnings */
INLINED void downward(int n, real alpha, real beta, real c[n][n], real a[n][n], real b[n][n])
{
    (void)beta;
    real *row = c[0], *end = c[0] + 1;
    for (real *from = a[0]; from != a[0] + (size_t)n * n; from += n, row += n, end += n + 1)
        for (int k = 0; k < n; k++) {
            real *other = b[end - row - 1] + k;
            for (real *p = end; p != row; other -= n)
                *--p += alpha * from[k] * *other;
        }
}

/* pointers in the source, compared by their order */
INLINED void ordered(int n, real alpha, real beta, real c[n][n], real a[n][n], real b[n][n])
{
    (void)b;
    real *row = c[0], *end = c[0] + 1;
    for (real *from = a[0]; from < a[0] + (size_t)n * n; from += n, row += n, end += n + 1) {
        for (real *p = row; p < end; p++)
            *p *= beta;
        for (int k = 0; k < n; k++) {
            real *other = a[0] + k;
            for (real *p = row; p < end; p++, other += n)
                *p += alpha * from[k] * *other;
        }
    }
}

/* elements of twice the size; the triangle shrinks from both sides */
INLINED void pairs(int n, real alpha, real beta, real c[n][n], real a[n][n], real b[n][n])
{
    (void)alpha, (void)beta, (void)b;
    pair *first = (pair *)c[0], *last = first + n;
    for (int i = 0; i < n / 2; i++, first++, last--)
        for (int k = 0; k < n; k++) {
            const pair *from = (const pair *)(a[0]) + (size_t)k * (n / 2);
            for (pair *p = first; p != last; p++)
                *p += *from * *(const pair *)a[i * 2];
        }
}

/* the outer counter is the bound */
INLINED void before(int n, real alpha, real beta, real c[n][n], real a[n][n], real b[n][n])
{
    (void)alpha, (void)beta, (void)a;
    for (real *p = c[0]; p != c[0] + n; p++)
        for (int k = 0; k < n; k++)
            for (real *q = b[0]; q != b[0] + (p - c[0]); q++)
                *p += *q * b[0][k];
}

INLINED void behind(int n, real alpha, real beta, real c[n][n], real a[n][n], real b[n][n])
{
    (void)alpha, (void)beta, (void)b;
    real *end = c[0] + n;
    for (real *p = c[0]; p != end; p++)
        for (int k = 1; k < n; k++) {
            real *from = a[k];
            for (real *q = p; q != end; q++)
                *q += from[q - p] * a[0][k];
        }
}

static __attribute__((noinline)) void tick(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    fprintf(stderr, "%ld\n", (long)now.tv_nsec % 10);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 10;
#ifdef SIZE
    enum { n = SIZE };
#else
    int n = argc > 2 ? atoi(argv[2]) : 12;
#endif
    real (*a)[n] = malloc(sizeof(real[n][n])), (*b)[n] = malloc(sizeof(real[n][n])), (*c)[n] = malloc(sizeof(real[n][n]));
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            a[i][j] = (real)((i * j + 1) % 13) / 16;
            b[i][j] = (real)((i + 3 * j) % 11) / 16;
            c[i][j] = (real)((i + j) % 7) / 8;
        }
    for (int r = 0; r < rounds; r++) {
        tick();
        NEST(n, (real)0.5, (real)0.75, c, a, b);
        tick();
    }
    unsigned long sum = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            unsigned long bits = 0;
            memcpy(&bits, &c[i][j], sizeof(real));
            sum = sum * 31 + (bits ^ bits >> 32);
        }
    printf("%016lx\n", sum);
    return 0;
}
