/* Nests of intrinsics on numbers that raise exception flags. Each call starts with clear flags, and what it raised is
   counted, so one call of a wrong version shows. Argument: calls.
   CASE: the operation that is done with each element of f. */
#include <immintrin.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#define N 320
#if CASE == 1 /* quiet: a quiet NaN raises nothing */
#define ODD NAN
#define STEP(s, w, f) _mm256_add_pd(s, _mm256_and_pd(_mm256_cmp_pd(w, f, _CMP_LT_OQ), _mm256_set1_pd(1)))
#elif CASE == 2 /* quiet, negated */
#define ODD NAN
#define STEP(s, w, f) _mm256_add_pd(s, _mm256_and_pd(_mm256_cmp_pd(w, f, _CMP_NGE_UQ), _mm256_set1_pd(1)))
#elif CASE == 3 /* signalling: a quiet NaN is invalid */
#define ODD NAN
#define STEP(s, w, f) _mm256_add_pd(s, _mm256_and_pd(_mm256_cmp_pd(w, f, _CMP_EQ_OS), _mm256_set1_pd(1)))
#elif CASE == 4 /* equal or unordered */
#define ODD NAN
#define STEP(s, w, f) _mm256_add_pd(s, _mm256_and_pd(_mm256_cmp_pd(w, f, _CMP_EQ_UQ), _mm256_set1_pd(1)))
#elif CASE == 5 /* floor: gcc's own is never inexact */
#define ODD 0.5
#define STEP(s, w, f) _mm256_add_pd(s, _mm256_round_pd(_mm256_add_pd(w, f), _MM_FROUND_FLOOR | _MM_FROUND_NO_EXC))
#elif CASE == 6 /* the same, inexact */
#define ODD 0.5
#define STEP(s, w, f) _mm256_add_pd(s, _mm256_round_pd(_mm256_add_pd(w, f), _MM_FROUND_FLOOR))
#elif CASE == 7 /* one adds, one subtracts: only the sum of infinities of two signs is invalid */
#define ODD -INFINITY
#define INITIAL -INFINITY
#define STEP(s, w, f) _mm256_addsub_pd(s, _mm256_unpacklo_pd(_mm256_setzero_pd(), f))
#endif
#ifdef STEP
typedef double element, sum;
#define LANES 4
__attribute__((noinline)) static void call(sum *s, const element *w, const element *f, long n) {
    for (long i = 0; i < n; i++)
        for (long k = 0; k < n; k++)
            for (long j = 0; j < n; j += LANES)
                _mm256_storeu_pd(s + i * N + j, STEP(_mm256_loadu_pd(s + i * N + j), _mm256_set1_pd(w[i * N + k]),
                                                     _mm256_loadu_pd(f + k * N + j)));
}
#elif CASE >= 12
#if CASE == 12 /* UCOMISD */
typedef double element, sum;
#define ODD NAN
#define CONDITION(w, f) isgreater(w, f)
#elif CASE == 13 /* COMISD */
typedef double element, sum;
#define ODD NAN
#define CONDITION(w, f) ((w) > (f))
#elif CASE == 14 /* UCOMISS: beside a NaN, a denormal operand raises nothing */
typedef float element, sum;
#define ODD NAN
#define WEIGHT 1e-40f
#define CONDITION(w, f) isless(w, f)
#define OTHERS NAN
#endif
__attribute__((noinline)) static void call(sum *s, const element *w, const element *f, long n) {
    for (long i = 0; i < n; i++)
        for (long k = 0; k < n; k++)
            for (long j = 0; j < n; j++)
                if (CONDITION(w[i * N + k], f[k * N + j])) s[i * N + j] += 1;
}
#else
typedef int sum;
#if CASE == 8 /* denormal operands are none here; towards zero */
typedef float element;
#define ODD 1e-40f
#define CONVERTED(f) _mm_cvttps_epi32(_mm_loadu_ps(f))
#define LANES 4
#elif CASE == 9 /* upwards, as MXCSR says: 1 where the other rounds to 0 */
typedef float element;
#define ODD 1e-40f
#define CONVERTED(f) _mm_cvtps_epi32(_mm_loadu_ps(f))
#define LANES 4
#define ROUNDING _MM_ROUND_UP
#elif CASE == 10
typedef double element;
#define ODD 5e-324
#define CONVERTED(f) _mm256_cvttpd_epi32(_mm256_loadu_pd(f))
#define LANES 4
#elif CASE == 11
typedef double element;
#define ODD 2.5
#define CONVERTED(f) _mm256_cvtpd_epi32(_mm256_loadu_pd(f))
#define LANES 4
#define ROUNDING _MM_ROUND_DOWN
#endif
__attribute__((noinline)) static void call(sum *s, const element *w, const element *f, long n) {
    for (long i = 0; i < n; i++)
        for (long k = 0; k < n; k++)
            for (long j = 0; j < n; j += LANES) {
                __m128i *to = (__m128i *)(s + i * N + j);
                _mm_storeu_si128(to, _mm_add_epi32(_mm_loadu_si128(to), CONVERTED(f + k * N + j)));
            }
}
#endif
#ifndef ROUNDING
#define ROUNDING _MM_ROUND_NEAREST
#endif
#ifndef WEIGHT
#define WEIGHT (i % 61)
#endif
#ifndef OTHERS
#define OTHERS (i % 1013)
#endif
#ifndef INITIAL
#define INITIAL 0
#endif
int main(int argc, char **argv) {
    int calls = argc > 1 ? atoi(argv[1]) : 200, raised[64] = {0};
    sum *s = malloc(N * N * sizeof *s);
    element *w = malloc(N * N * sizeof *w), *f = malloc(N * N * sizeof *f);
    for (int i = 0; i < N * N; i++) s[i] = INITIAL, w[i] = WEIGHT, f[i] = i % 7 ? OTHERS : (element)ODD;
    for (int c = 0; c < calls; c++) {
        _mm_setcsr(0x1f80 | ROUNDING);
        call(s, w, f, N);
        raised[_mm_getcsr() & 63]++;
    }
    unsigned long hash = 0;
    for (size_t i = 0; i < N * N * sizeof *s; i++) hash = hash * 31 + ((unsigned char *)s)[i];
    for (int i = 0; i < 64; i++)
        if (raised[i]) printf("flags %02x: %d calls\n", i, raised[i]);
    printf("%lx\n", hash);
    return 0;
}
