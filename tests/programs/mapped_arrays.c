/* A matrix product on arrays in mappings that memopt must not touch. usage: program MODE [n]
     shared   c lies in MAP_SHARED | MAP_ANONYMOUS memory
     file     all three lie in a MAP_SHARED memfd, mapped once
     twice    c and b are two MAP_SHARED mappings of the same pages: every store changes what is read later
     beside   the arrays lie in a MAP_PRIVATE mapping of a memfd that is mapped MAP_SHARED as well
     private  plain MAP_PRIVATE | MAP_ANONYMOUS memory: nothing wrong with it */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <unistd.h>

#include "matrix.h"

void dgemm(int n, REAL *a, REAL *b, REAL *c)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            for (int k = 0; k < n; k++)
                c[i * n + j] += a[i * n + k] * b[k * n + j];
}

static REAL *map(size_t count, int flags, int file, size_t place)
{
    size_t size = (count * sizeof(REAL) + 4095) & ~(size_t)4095;
    void *x = mmap(0, size, PROT_READ | PROT_WRITE, flags, file, (off_t)(place * size));
    if (x == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return x;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "shared";
    int n = parse_size(argc > 2 ? argv[2] : "512");
    size_t count = (size_t)n * n;
    int file = memfd_create("arrays", 0);
    if (file < 0 || ftruncate(file, (off_t)(3 * ((count * sizeof(REAL) + 4095) & ~(size_t)4095)))) {
        perror("memfd");
        return 1;
    }
    int private = MAP_PRIVATE | MAP_ANONYMOUS;
    REAL *a, *b, *c, *other = 0;
    if (!strcmp(mode, "shared")) {
        a = map(count, private, -1, 0);
        b = map(count, private, -1, 0);
        c = map(count, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    } else if (!strcmp(mode, "file")) {
        a = map(count, MAP_SHARED, file, 0);
        b = map(count, MAP_SHARED, file, 1);
        c = map(count, MAP_SHARED, file, 2);
    } else if (!strcmp(mode, "twice")) {
        a = map(count, private, -1, 0);
        b = map(count, MAP_SHARED, file, 0);
        c = map(count, MAP_SHARED, file, 0);
    } else if (!strcmp(mode, "beside")) {
        a = map(count, MAP_PRIVATE, file, 0);
        b = map(count, MAP_PRIVATE, file, 1);
        c = map(count, MAP_PRIVATE, file, 2);
        other = map(count, MAP_SHARED, file, 1);
    } else if (!strcmp(mode, "private")) {
        a = map(count, private, -1, 0);
        b = map(count, private, -1, 0);
        c = map(count, private, -1, 0);
    } else {
        fprintf(stderr, "%s: not a mode\n", mode);
        return 2;
    }
    fill(a, count, 1);
    fill(other ? other : b, count, 2);
    fill(c, count, 3);
    double start = now();
    dgemm(n, a, b, c);
    fprintf(stderr, "seconds %.6f\n", now() - start);
    print_matrix(c, n, 0);
    return 0;
}
