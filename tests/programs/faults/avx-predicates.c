/* Quiet comparisons of AVX raise no flag for quiet NaNs. */
#include "witness.h"
#include <fenv.h>
#include <immintrin.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#define N 400
/* The quiet comparisons of AVX (_CMP_LT_OQ, most used in programs) raise nothing for quiet NaNs */
__attribute__((noinline)) void count(double *s, const double *w, const double *f, long n) {
    for (long i = 0; i < n; i++)
        for (long k = 0; k < n; k++)
            for (long j = 0; j < n; j += 4) {
                __m256d less = _mm256_cmp_pd(_mm256_set1_pd(w[i * N + k]), _mm256_loadu_pd(f + k * N + j), _CMP_LT_OQ);
                _mm256_storeu_pd(s + i * N + j, _mm256_add_pd(_mm256_loadu_pd(s + i * N + j), _mm256_and_pd(less, _mm256_set1_pd(1))));
            }
}
int main(int argc, char **argv) {
    double *s = calloc(N * N, 8), *w = calloc(N * N, 8), *f = malloc(N * N * 8);
    for (int i = 0; i < N * N; i++) f[i] = i % 1013, w[i] = i % 997;
    witness(count);
    for (int r = 0; r < 3 || awaited(); r++) count(s, w, f, N);
    for (int i = 0; i < N * N; i++) f[i] = i % 7 ? i : NAN;
    acts();
    feclearexcept(FE_ALL_EXCEPT);
    count(s, w, f, N);
    printf("FE_INVALID is %s\n", fetestexcept(FE_INVALID) ? "set" : "clear");
    return 0;
}
