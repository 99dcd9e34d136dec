/* Sums whose operands are swapped in every second copy of an unrolled loop. NaNs with payloads of their own come in one
 * repetition: which of two comes out of a sum depends on the order. Usage: swapped n repetitions bad (-1: none) */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double sum(double one, double two)
{
    __asm__("addsd %1, %0" : "+x"(one) : "x"(two));
    return one;
}

__attribute__((noinline)) static void sweep(int steps, int n, double *restrict a, double *restrict b,
                                            const double *restrict c)
{
    for (int t = 0; t < steps; t++) {
        for (int j = 0; j < n; j += 2) {
            a[j] = sum(b[j], c[j]);
            a[j + 1] = sum(c[j + 1], b[j + 1]);
        }
        for (int j = 0; j < n; j++)
            b[j] = sum(a[j], c[j]) * 0.5;
    }
}

static double nan_of(uint64_t payload)
{
    uint64_t bits = UINT64_C(0x7ff8) << 48 | payload;
    double number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 4096, repetitions = argc > 2 ? atoi(argv[2]) : 300;
    int bad = argc > 3 ? atoi(argv[3]) : -1;
    double *a = calloc(n, sizeof *a), *b = calloc(n, sizeof *b), *c = calloc(n, sizeof *c);
    uint64_t hash = 0;
    for (int r = 0; r < repetitions; r++) {
        for (int j = 0; j < n; j++) {
            b[j] = j % 17 * 0.25;
            c[j] = j % 23 == 5 ? 1.0 / 0.0 : j % 23 * 0.5;
        }
        if (r == bad) {
            for (int j = 0; j < 6; j++) {
                b[j] = nan_of(100 + j);
                c[j] = nan_of(200 + j);
            }
            b[10] = -1.0 / 0.0; /* and one more comes up on the way */
            c[10] = 1.0 / 0.0;
        }
        sweep(400, n, a, b, c);
        for (int j = 0; j < n; j++) {
            uint64_t bits;
            memcpy(&bits, a + j, sizeof bits);
            hash = hash * 31 + bits;
        }
        if (r == bad)
            for (int j = 0; j < 6; j++) {
                uint64_t bits;
                memcpy(&bits, a + j, sizeof bits);
                printf("%llx\n", (unsigned long long)bits);
            }
    }
    printf("%016llx\n", (unsigned long long)hash);
    return 0;
}
