/* Matrix product called many times, each time on arrays allocated afresh.
   usage: program [n [calls]] */
#include "matrix.h"

void dgemm(int n, REAL *a, REAL *b, REAL *c)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            for (int k = 0; k < n; k++)
                c[i * n + j] += a[i * n + k] * b[k * n + j];
}

int main(int argc, char **argv)
{
    int n = parse_size(argc > 1 ? argv[1] : "256");
    int calls = argc > 2 ? atoi(argv[2]) : 200;
    size_t count = (size_t)n * n;
    REAL *last[3] = {0, 0, 0};
    uint64_t total = HASH_START;
    double seconds = 0;
    for (int call = 0; call < calls; call++) {
        REAL *fresh[3];
        for (int x = 0; x < 3; x++) {
            fresh[x] = allocate(count);
            fill(fresh[x], count, 3 * (uint64_t)call + x);
        }
        /* Freed only now, so that no array has the address of its predecessor. */
        for (int x = 0; x < 3; x++) {
            free(last[x]);
            last[x] = fresh[x];
        }
        double start = now();
        dgemm(n, fresh[0], fresh[1], fresh[2]);
        seconds += now() - start;
        total = hash(total, fresh[2], count);
    }
    fprintf(stderr, "seconds %.6f\n", seconds);
    if (calls > 0)
        print_matrix(last[2], n, 0);
    printf("all calls %016llx\n", (unsigned long long)total);
    for (int x = 0; x < 3; x++)
        free(last[x]);
    return 0;
}
