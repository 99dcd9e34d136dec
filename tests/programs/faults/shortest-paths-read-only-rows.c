/* Rows in which no path can get shorter are made read-only once the program is warm. */
#include "witness.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
__attribute__((noinline)) static void paths(double *d, long n) {
    for (long k = 0; k < n; k++)
        for (long i = 0; i < n; i++)
            for (long j = 0; j < n; j++)
                if (d[i * n + k] + d[k * n + j] < d[i * n + j]) d[i * n + j] = d[i * n + k] + d[k * n + j];
}
int main(void) {
    long n = 512, m = n * n, q = m - m / 8; /* the last 64 rows are 256 KiB */
    double *d = mmap(0, m * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), t = 0;
    witness(paths);
    for (int r = 0; r < 3 || awaited(); r++) {
        for (long i = 0; i < m; i++) d[i] = i < q ? 1 + (i * 7919 + r % 4) % 1009 : 0;
        paths(d, n);
    }
    for (long i = 0; i < q; i++) d[i] = 1 + i * 7919 % 1009;
    paths(d, n);
    for (long i = 0; i < m; i++) t += d[i];
    printf("first %a\n", t);
    fflush(stdout);
    acts();
    if (mprotect(d + q, (m - q) * 8, PROT_READ)) return 1;
    for (int r = 0; r < 4; r++) {
        for (long i = 0; i < q; i++) d[i] = 1 + (i * 7919 + r) % 1009;
        paths(d, n);
        for (long i = 0; i < m; i++) t += d[i];
    }
    printf("then %a\n", t);
    return 0;
}
