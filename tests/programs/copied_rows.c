/* Jacobi's iteration with its average in a function of its own, copied back row by row by memcpy; the sums of rows
   are cleared by memset. -DOWN_MEMCPY: by a memcpy that copies upside down. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef OWN_MEMCPY
__attribute__((noinline)) void *memcpy(void *to, const void *from, size_t size)
{
    for (size_t i = 0; i < size / sizeof(double); i++)
        ((double *)to)[i] = ((const double *)from)[size / sizeof(double) - 1 - i];
    return to;
}
#endif

__attribute__((noinline)) double average(double west, double east, double north, double south)
{
    double sum = west + east;
    sum += north + south;
    return 0.25 * sum;
}

__attribute__((noinline)) void relax(int steps, int n, double *a, double *b, double *sums)
{
    for (int t = 0; t < steps; t++) {
        memset(sums, 0, (size_t)n * sizeof *sums);
        for (int i = 1; i < n - 1; i++)
            for (int j = 1; j < n - 1; j++) {
                const double *at = a + (size_t)i * n + j;
                double new = average(at[-1], at[1], at[-n], at[n]);
                b[(size_t)i * n + j] = new;
                sums[i] += new;
            }
        for (int i = 1; i < n - 1; i++)
            memcpy(a + (size_t)i * n + 1, b + (size_t)i * n + 1, (size_t)(n - 2) * sizeof *a);
    }
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 700, repetitions = argc > 2 ? atoi(argv[2]) : 40;
    size_t count = (size_t)n * n;
    double *a = malloc(count * sizeof *a), *b = malloc(count * sizeof *b), *sums = malloc((size_t)n * sizeof *sums);
    unsigned long long state = 1, hash = 14695981039346656037u;
    for (size_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        a[i] = b[i] = (double)(state >> 11) * 0x1p-53;
    }
    for (int r = 0; r < repetitions; r++) {
        relax(10, n, a, b, sums);
        for (size_t i = 0; i < count; i += 7) {
            unsigned long long bits;
            memcpy(&bits, a + i, sizeof bits);
            hash = (hash ^ bits) * 1099511628211u;
        }
        for (int i = 0; i < n; i++)
            hash = (hash ^ (unsigned long long)(sums[i] * 0x1p30)) * 1099511628211u;
    }
    printf("%llx\n", hash);
    return 0;
}
