/* Square roots by a branch that also leaves for NaNs, again and again, as clang compiles them. In repetition number
 * ``bad`` one number is a NaN of its own, or negative. usage: program [n] [repetitions] [bad] [negative] */
#include <math.h>
#include <stdint.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double root(double x)
{
    if (!(x >= 0))
        return fmax(x, 2);  // not what sqrtsd makes of a NaN
    __asm__("sqrtsd %0, %0" : "+x"(x));
    return x;
}

__attribute__((noipa)) void roots(int steps, int n, const double *restrict a, double *restrict b)
{
    for (int t = 0; t < steps; t++)
        for (int j = 0; j < n; j++)
            b[j] = root(a[j] + b[j]);
}

int main(int argc, char **argv)
{
    int n = atoi(argc > 1 ? argv[1] : "2048");
    int repetitions = argc > 2 ? atoi(argv[2]) : 1000, bad = argc > 3 ? atoi(argv[3]) : -1;
    int negative = argc > 4;
    double *a = calloc(n, sizeof *a), *b = calloc(n, sizeof *b), sum = 0;
    for (int r = 0; r < repetitions; r++) {
        for (int j = 0; j < n; j++) {
            a[j] = 1 + j % 13;
            b[j] = j % 7 + r % 5;
        }
        if (r == bad) {
            uint64_t bits = UINT64_C(0x7ff8) << 48 | 4711;
            memcpy(a + n / 2, &bits, sizeof bits);
            if (negative)
                a[n / 2] = -9;
        }
        roots(200, n, a, b);
        if (r == bad) {
            uint64_t bits;
            memcpy(&bits, b + n / 2, sizeof bits);
            printf("%llx\n", (unsigned long long)bits);
        }
        sum += b[r % n];
    }
    printf("%a\n", sum);
    return 0;
}
