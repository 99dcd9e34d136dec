/* Loops whose lines must be found: each line that begins one is marked. */
#include <stddef.h>

void product(size_t n, const double *a, const double *b, double *c)
{
    for (size_t i = 0; i < n; i++)         /* loop */
        for (size_t j = 0; j < n; j++)     /* loop */
            for (size_t k = 0; k < n; k++) /* loop */
                c[i * n + j] += a[i * n + k] * b[k * n + j];
}

static double row_sum(const double *row, int n)
{
    double s = 0;
    for (int j = 0; j < n; j++) /* loop */
        s += row[j];
    return s;
}

double sums(const double *a, double *out, int n)
{
    double most = 0;
    int i = 0;
    while (i < n) { /* loop */
        double s = row_sum(a + (long)i * n, n);
        if (s > most)
            most = s;
        out[i++] = s;
    }
    return most;
}

long search(const long *keys, long n, long key)
{
    for (long i = 0; i < n; i++) { /* loop */
        if (keys[i] < 0)
            continue;
        if (keys[i] == key)
            return i;
        if (keys[i] > 1000000 &&
            keys[i] % 7 == 3)
            break;
    }
    return -1;
}

void relax(double *u, const double *f, int n, int rounds)
{
    for (int t = 0; t < rounds; t++) { /* loop */
        double before = u[0];
        for (int i = 1; i < n - 1; i++) { /* loop */
            double old = u[i];
            u[i] = 0.25 * (before + 2 * old + u[i + 1]) + f[i];
            before = old;
        }
        u[0] = u[1];
        u[n - 1] = u[n - 2];
    }
}
