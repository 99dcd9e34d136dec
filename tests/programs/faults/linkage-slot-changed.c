/* The nest calls a function of a library through the linkage table; the program makes the slot lead to another one, as
   programs that hook functions do. Usage: the library stands beside the program. */
#ifdef LIB
double weighed(double x, double y) { return x * y + 3; }
double weighed_otherwise(double x, double y) { return x * y + 1000; }
#else
#include "witness.h"
#include <stdint.h>
double weighed(double, double), weighed_otherwise(double, double);
extern void *_GLOBAL_OFFSET_TABLE_[];
static void *(*volatile otherwise) = (void *)weighed_otherwise;
__attribute__((noinline)) static void nest(double *x, double *y, double *z, long n) {
    for (long i = 0; i < n; i++)
        for (long j = 0; j < n; j++)
            for (long k = 0; k < n; k++) z[i * n + k] += weighed(x[i * n + j], y[j * n + k]);
}
int main(void) {
    long n = 260, changed = 0;
    double *x = calloc(n * n, 8), *y = calloc(n * n, 8), *z = calloc(n * n, 8);
    witness(nest);
    for (int r = 0; r < 3 || awaited(); r++) nest(x, y, z, n);
    acts();
    for (int r = -64; r < 64; r++)
        if (_GLOBAL_OFFSET_TABLE_[r] && _GLOBAL_OFFSET_TABLE_[r] != (void *)otherwise) {
            intptr_t apart = (char *)otherwise - (char *)_GLOBAL_OFFSET_TABLE_[r];
            if (apart > 0 && apart < 256) _GLOBAL_OFFSET_TABLE_[r] = (void *)otherwise, changed++;
        }
    memset(z, 0, n * n * 8);
    nest(x, y, z, n);
    printf("%ld slot: %g\n", changed, z[n * n / 2 + 77]);
    return 0;
}
#endif
