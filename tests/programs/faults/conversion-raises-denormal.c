/* Denormal numbers converted to integers raise "inexact", not "denormal operand". To be vectorised: CVTTPS2DQ. */
#include "witness.h"
#include <stdio.h>
#include <stdlib.h>
#include <xmmintrin.h>
#define N 400
/* Conversion of denormal numbers to integers: the processor raises "inexact", new code "denormal operand" besides.
   The compiler must have vectorised it (CVTTPS2DQ): gcc -O3 */
__attribute__((noinline)) void add(int *restrict s, const int *restrict w, const float *restrict f, int n) {
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            for (int j = 0; j < n; j++) s[i * N + j] += w[i * N + k] * (int)f[k * N + j];
}
int main(int argc, char **argv) {
    int *s = calloc(N * N, 4), *w = calloc(N * N, 4); float *f = malloc(N * N * 4);
    for (int i = 0; i < N * N; i++) f[i] = i % 1013 + 0.5f, w[i] = i % 17;
    witness(add);
    for (int r = 0; r < 3 || awaited(); r++) add(s, w, f, N);
    for (int i = 0; i < N * N; i++) f[i] = 1e-40f;
    acts();
    _mm_setcsr(0x1f80);
    add(s, w, f, N);
    printf("flags %x\n", _mm_getcsr() & 63);
    return 0;
}
