/* Two builds of one plug-in, loaded in turn; they differ in one constant. Usage: 0.so 1.so ROUNDS
   For so many rounds they change every few calls, while memopt may be at work; then one stays until new code has been in
   place, and they change again. */
#include "witness.h"
#include <dlfcn.h>
#define N 300
static double *a, *b, *c, *want[2];
static int wrong, moved;
static void *library, *at;
typedef void (*F)(double *, double *, double *, int);
static F opened(const char *name) {
    if (library) dlclose(library);
    library = dlopen(name, RTLD_NOW);
    if (!library) puts(dlerror()), exit(1);
    F f = (F)dlsym(library, "product");
    moved += at && at != (void *)f;
    at = (void *)f;
    witness_bytes_of((void *)f, (char *)dlsym(library, "product_end") - (char *)f);
    return f;
}
static void calls(F f, int version, int number) {
    for (int q = 0; q < number; q++) {
        memset(c, 0, N * N * 8);
        f(c, a, b, N);
        in_place();
        wrong += memcmp(c, want[version], N * N * 8) != 0;
    }
}
int main(int argc, char **argv) {
    int rounds = argc > 3 ? atoi(argv[3]) : 40;
    a = calloc(N * N + 99, 8), b = malloc(N * N * 8), c = malloc(N * N * 8);
    for (int i = 0; i < N * N; i++) a[i] = i % 1013, b[i] = i % 997;
    for (int v = 0; v < 2; v++) {   /* what each is to give, by a plain loop of another shape */
        want[v] = calloc(N * N, 8);
        for (int i = 0; i < N; i++) for (int k = 0; k < N; k++) for (int j = 0; j < N; j++) want[v][i * N + j] += a[i * N + k + v] * b[k * N + j];
    }
    for (int r = 0; r < rounds; r++) calls(opened(argv[1 + r % 2]), r % 2, 3);
    F f = opened(argv[1]);
    do calls(f, 0, 1); while (!witness_seen && awaited());
    for (int r = 1; r < 6; r++) calls(opened(argv[1 + r % 2]), r % 2, 3);
    told_in_place(witness_seen);
    printf("%d wrong\n", wrong);
    fprintf(stderr, "moved %d times\n", moved);
    return 0;
}
