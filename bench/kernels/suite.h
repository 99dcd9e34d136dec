/* What the kernels of the suite share: arguments, data, a clock, and output in which every bit counts.

   program [repetitions [size ...]]

   Each repetition's seconds go to stderr, results to stdout. Everything here is sequential integer work or one pass
   over the data, outside the timed part. */
#ifndef SUITE_H
#define SUITE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KERNEL __attribute__((noinline))

#define HASH_START 14695981039346656037u
#define SAMPLES 200000u

struct run {
    int repetitions, argc;
    char **argv;
    int next;      /* the next size in argv */
    double start;  /* of the current repetition */
    uint64_t hash; /* of what was observed after each repetition */
};

static inline int whole_number(const char *text)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (*end || n < 1 || n > 1000000000) {
        fprintf(stderr, "%s: not a positive number\n", text);
        exit(2);
    }
    return (int)n;
}

static inline struct run begin(int argc, char **argv, int repetitions)
{
    struct run run = {repetitions, argc, argv, 2, 0.0, HASH_START};
    if (argc > 1)
        run.repetitions = whole_number(argv[1]);
    return run;
}

/* The next size: from the command line, else as given; with -DN=... the first is that constant. */
static inline int next_size(struct run *run, int otherwise)
{
    int position = run->next++;
    return position < run->argc ? whole_number(run->argv[position]) : otherwise;
}

#ifdef N
#define first_size(run, otherwise) (N)
#else
#define first_size(run, otherwise) next_size(run, otherwise)
#endif

static inline double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline void tick(struct run *run)
{
    run->start = now();
}

static inline void tock(struct run *run)
{
    fprintf(stderr, "seconds %.6f\n", now() - run->start);
}

static inline void *memory(size_t bytes)
{
    void *p = malloc(bytes);
    if (!p) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return p;
}

static inline uint64_t step(uint64_t state)
{
    return state * 6364136223846793005u + 1442695040888963407u;
}

/* In (-0.5, 0.5). */
static inline double uniform(uint64_t state)
{
    return (double)(int64_t)(state >> 11) * 0x1p-53 - 0.5;
}

/* For elements of type T: fill_NAME gives each element of an array its pseudo-random VALUE, NAMEs is malloc and fill,
   observe_NAME counts some elements into the run's hash, report_NAME prints some elements, the sum of all and their
   hash. */
#define SUITE_TYPE(T, NAME, VALUE) \
    static inline void fill_##NAME(T *x, size_t count, uint64_t state) \
    { \
        for (size_t i = 0; i < count; i++) { \
            state = step(state); \
            x[i] = (T)(VALUE); \
        } \
    } \
    static inline T *NAME##s(size_t count, uint64_t seed) \
    { \
        T *x = (T *)memory(count * sizeof(T)); \
        fill_##NAME(x, count, seed); \
        return x; \
    } \
    static inline uint64_t hash_##NAME(uint64_t h, const T *x, size_t count, size_t stride) \
    { \
        for (size_t i = 0; i < count; i += stride) { \
            uint64_t word = 0; \
            memcpy(&word, &x[i], sizeof(T)); \
            h = (h ^ word) * 1099511628211u; \
        } \
        return h; \
    } \
    static inline void observe_##NAME(struct run *run, const T *x, size_t count) \
    { \
        run->hash = hash_##NAME(run->hash, x, count, 1 + count / SAMPLES); \
    } \
    static inline void report_##NAME(const char *name, const T *x, size_t count) \
    { \
        double sum = 0; \
        for (size_t i = 0; i < count; i++) \
            sum += (double)x[i]; \
        printf("%s", name); \
        for (size_t i = 0; i < 9; i++) \
            printf(" %a", (double)x[(count - 1) / 8 * i]); \
        printf("\n%s sum %a hash %016llx\n", name, sum, \
               (unsigned long long)hash_##NAME(HASH_START, x, count, 1)); \
    }

SUITE_TYPE(double, real, uniform(state))
SUITE_TYPE(float, single, uniform(state))
SUITE_TYPE(int32_t, integer, (state >> 33) % 1000)
SUITE_TYPE(int64_t, wide, (state >> 33) % 1000)
SUITE_TYPE(uint8_t, byte, state >> 56)

static inline int finish(struct run *run)
{
    printf("all repetitions %016llx\n", (unsigned long long)run->hash);
    return 0;
}

#endif
