/* V-cycles of a three-dimensional multigrid, 450 MB in two seconds. usage: program [CYCLES]. Prints a sum, and on
   standard error how many page faults it took. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#define LEVELS 6
#define AT(a, n, i, j, k) a[((long)(i) * (n) + (j)) * (n) + (k)]

static int size[LEVELS];
static double *u[LEVELS], *f[LEVELS], *r[LEVELS];

__attribute__((noinline)) static void smooth(int n, double *u, const double *f, double *t)
{
    for (int i = 1; i < n - 1; i++)
        for (int j = 1; j < n - 1; j++)
            for (int k = 1; k < n - 1; k++)
                AT(t, n, i, j, k) = AT(u, n, i, j, k) + 0.8 / 6 * (
                    AT(f, n, i, j, k) + AT(u, n, i - 1, j, k) + AT(u, n, i + 1, j, k) + AT(u, n, i, j - 1, k)
                    + AT(u, n, i, j + 1, k) + AT(u, n, i, j, k - 1) + AT(u, n, i, j, k + 1) - 6 * AT(u, n, i, j, k));
    for (int i = 1; i < n - 1; i++)
        for (int j = 1; j < n - 1; j++)
            for (int k = 1; k < n - 1; k++)
                AT(u, n, i, j, k) = AT(t, n, i, j, k);
}

__attribute__((noinline)) static void residual(int n, const double *u, const double *f, double *r)
{
    for (int i = 1; i < n - 1; i++)
        for (int j = 1; j < n - 1; j++)
            for (int k = 1; k < n - 1; k++)
                AT(r, n, i, j, k) = AT(f, n, i, j, k) + AT(u, n, i - 1, j, k) + AT(u, n, i + 1, j, k)
                    + AT(u, n, i, j - 1, k) + AT(u, n, i, j + 1, k) + AT(u, n, i, j, k - 1) + AT(u, n, i, j, k + 1) - 6 * AT(u, n, i, j, k);
}

__attribute__((noinline)) static void restricted(int n, const double *r, int m, double *f)
{
    for (int i = 1; i < m - 1; i++)
        for (int j = 1; j < m - 1; j++)
            for (int k = 1; k < m - 1; k++)
                AT(f, m, i, j, k) = AT(r, n, 2 * i, 2 * j, 2 * k)
                    + 0.5 * (AT(r, n, 2 * i - 1, 2 * j, 2 * k) + AT(r, n, 2 * i + 1, 2 * j, 2 * k));
}

__attribute__((noinline)) static void prolongated(int n, double *u, int m, const double *v)
{
    for (int i = 1; i < m - 1; i++)
        for (int j = 1; j < m - 1; j++)
            for (int k = 1; k < m - 1; k++) {
                AT(u, n, 2 * i, 2 * j, 2 * k) += AT(v, m, i, j, k);
                AT(u, n, 2 * i, 2 * j, 2 * k + 1) += 0.5 * (AT(v, m, i, j, k) + AT(v, m, i, j, k + 1));
            }
}

static void cycle(int l)
{
    smooth(size[l], u[l], f[l], r[l]);
    if (l + 1 == LEVELS)
        return;
    residual(size[l], u[l], f[l], r[l]);
    restricted(size[l], r[l], size[l + 1], f[l + 1]);
    long m = (long)size[l + 1] * size[l + 1] * size[l + 1];
    for (long i = 0; i < m; i++)
        u[l + 1][i] = 0;
    cycle(l + 1);
    prolongated(size[l], u[l], size[l + 1], u[l + 1]);
    smooth(size[l], u[l], f[l], r[l]);
}

int main(int argc, char **argv)
{
    int cycles = argc > 1 ? atoi(argv[1]) : 5;
    for (int l = 0, n = 256; l < LEVELS; l++, n /= 2) {
        long count = (long)(n + 1) * (n + 1) * (n + 1);
        size[l] = n + 1;
        u[l] = calloc(count, 8), f[l] = calloc(count, 8), r[l] = calloc(count, 8);
    }
    long count = (long)size[0] * size[0] * size[0];
    for (long i = 0; i < count; i++)
        f[0][i] = i % 17 - 8;
    for (int c = 0; c < cycles; c++)
        cycle(0);
    double s = 0;
    for (long i = 0; i < count; i++)
        s += r[0][i] * r[0][i] + u[0][i];
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    fprintf(stderr, "faults %ld\n", used.ru_minflt);
    printf("%a\n", s);
    return 0;
}
