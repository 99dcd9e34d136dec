/* What the matrix-product kernels share: data, a checksum in which every bit of every element counts, and a clock. */
#ifndef MATRIX_H
#define MATRIX_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef REAL
#define REAL double
#endif

/* Pseudo-random numbers in (-0.5, 0.5): sums of their products round differently in every other order. */
static inline void fill(REAL *x, size_t count, uint64_t state)
{
    for (size_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        x[i] = (REAL)((double)(state >> 11) * 0x1p-53 - 0.5);
    }
}

static inline REAL *allocate(size_t count)
{
    REAL *x = malloc(count * sizeof *x);
    if (!x) {
        fprintf(stderr, "no memory for %zu elements\n", count);
        exit(1);
    }
    return x;
}

static inline double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* FNV-1a over words of one element each. */
static inline uint64_t hash(uint64_t h, const REAL *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t word = 0;
        memcpy(&word, &x[i], sizeof x[i]);
        h = (h ^ word) * 1099511628211u;
    }
    return h;
}

#define HASH_START 14695981039346656037u

/* The whole matrix when it is small or asked for; always some elements, a weighted sum and the hash. */
static inline void print_matrix(const REAL *c, int n, int all)
{
    size_t count = (size_t)n * n;
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)c[i] * (double)(i % 97 + 1);
    if (all || n <= 16)
        for (size_t i = 0; i < count; i++)
            printf("%a%c", (double)c[i], i % n == (size_t)n - 1 ? '\n' : ' ');
    printf("corners %a %a %a %a\n", (double)c[0], (double)c[n - 1], (double)c[count - n], (double)c[count - 1]);
    printf("sum %a\n", sum);
    printf("hash %016llx\n", (unsigned long long)hash(HASH_START, c, count));
}

static inline int parse_size(const char *text)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (*end || n < 1 || n > 46340) {
        fprintf(stderr, "%s: not a size from 1 to 46340\n", text);
        exit(2);
    }
    return (int)n;
}

#endif
