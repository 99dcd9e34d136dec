/* Square roots of sums, by the compiler with a call for negative numbers, which sets errno. In repetition number
 * ``bad`` one number in the middle is negative. usage: program [n] [repetitions] [bad] */
#include <errno.h>
#include <math.h>

#include "matrix.h"

__attribute__((noipa)) void roots(int n, const REAL *a, const REAL *b, REAL *c)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            c[j * n + i] = sqrt(a[j * n + i] + b[j * n + i]);
}

int main(int argc, char **argv)
{
    int n = parse_size(argc > 1 ? argv[1] : "512");
    int repetitions = argc > 2 ? atoi(argv[2]) : 100, bad = argc > 3 ? atoi(argv[3]) : -1;
    size_t count = (size_t)n * n;
    REAL *a = allocate(count), *b = allocate(count), *c = allocate(count);
    fill(a, count, 1);
    fill(b, count, 2);
    for (size_t i = 0; i < count; i++)
        a[i] += 2;
    double sum = 0;
    for (int r = 0; r < repetitions; r++) {
        a[count / 2] = r == bad ? -9 : 2 + r;
        errno = 0;
        roots(n, a, b, c);
        if (errno)
            printf("repetition %d: errno %d, %a\n", r, errno, c[count / 2]);
        sum += c[(size_t)r * 7919 % count];
    }
    print_matrix(c, n, 0);
    printf("%a\n", sum);
    return 0;
}
