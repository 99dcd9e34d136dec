/* A function of the mathematical library of the distance between points. In repetition number ``bad`` one distance is
 * no distance: outside the function's domain. usage: program [n] [repetitions] [bad] */
#include <errno.h>
#include <math.h>

#include "matrix.h"

#ifndef FUNCTION
#define FUNCTION(distance) exp(-0.125 * (distance))
#endif
#define DIMENSIONS 37

__attribute__((noipa)) void functions(int n, const REAL *x, const REAL *least, REAL *k)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            REAL sum = 0;
            for (int l = 0; l < DIMENSIONS; l++) {
                REAL difference = x[i * DIMENSIONS + l] - x[j * DIMENSIONS + l];
                sum += difference * difference;
            }
            k[i * n + j] = FUNCTION(sum + least[i]);
        }
}

int main(int argc, char **argv)
{
    int n = parse_size(argc > 1 ? argv[1] : "301");
    int repetitions = argc > 2 ? atoi(argv[2]) : 100, bad = argc > 3 ? atoi(argv[3]) : -1;
    size_t count = (size_t)n * n;
    REAL *x = allocate((size_t)n * DIMENSIONS), *least = allocate(n), *k = allocate(count);
    fill(x, (size_t)n * DIMENSIONS, 1);
    double sum = 0;
    for (int r = 0; r < repetitions; r++) {
        for (int i = 0; i < n; i++)
            least[i] = r == bad && i == n / 2 ? -1e4 : 1;
        errno = 0;
        functions(n, x, least, k);
        if (errno)
            printf("repetition %d: errno %d\n", r, errno);
        for (size_t i = 0; i < count; i += 1 + i % 7)
            sum += isfinite(k[i]) ? k[i] : 1;
    }
    printf("%a\n", sum);
    print_matrix(k, n, 0);
    return 0;
}
