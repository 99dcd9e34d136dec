/* Plug-ins of one shape come and go: dlopen, run, dlclose, dlopen of another, which the kernel puts at the same address.
   addsd against subsd is all that differs, and that is not at the header. Usage: PLUS.so MINUS.so
   They change every few calls, while memopt may be at work; then one stays until new code has been in place. */
#ifdef LIB
void nest(const double *a, const double *b, double *c, long n) {
    for (long i = 0; i < n; i++)
        for (long j = 0; j < n; j++) {
            double s = 0;
            for (long k = 0; k < n; k++) s = s LIB a[i * n + k] * b[k * n + j];
            c[i * n + j] = s;
        }
}
void nest_end(void) {}
#else
#include "witness.h"
#include <dlfcn.h>
typedef void (*F)(const double *, const double *, double *, long);
static long n = 400, wrong, same;
static double *a, *b, *d, *want;
static void *library, *last;
static F opened(const char *name) {
    if (library) dlclose(library);
    library = dlopen(name, RTLD_NOW);
    if (!library) puts(dlerror()), exit(1);
    F f = (F)dlsym(library, "nest");
    same += (void *)f == last;
    last = (void *)f;
    witness_bytes_of((void *)f, (char *)dlsym(library, "nest_end") - (char *)f);
    return f;
}
static void calls(F f, int sign, int number) {
    for (int i = 0; i < number; i++) {
        memset(d, 0, n * n * 8);
        f(a, b, d, n);
        in_place();
        for (long q = 0; q < n * n; q++)
            if (d[q] != sign * want[q]) { wrong++; break; }
    }
}
int main(int argc, char **v) {
    a = calloc(n * n, 8), b = calloc(n * n, 8), d = calloc(n * n, 8), want = calloc(n * n, 8);
    for (long i = 0; i < n * n; i++) a[i] = i % 7 - 2.5, b[i] = i % 11 - 4.25;
    for (long i = 0; i < n; i++) for (long k = 0; k < n; k++) for (long j = 0; j < n; j++) want[i * n + j] += a[i * n + k] * b[k * n + j];
    for (int g = 0; g < 12; g++) calls(opened(v[1 + g % 2]), g % 2 ? -1 : 1, 3);
    F f = opened(v[1]);
    do calls(f, 1, 1); while (!witness_seen && awaited());
    for (int g = 1; g < 6; g++) calls(opened(v[1 + g % 2]), g % 2 ? -1 : 1, 3);
    told_in_place(witness_seen);
    printf("%ld wrong\n", wrong);
    fprintf(stderr, "%ld at the same address\n", same);
    return 0;
}
#endif
