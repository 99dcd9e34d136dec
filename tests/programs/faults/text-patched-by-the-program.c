/* A program changes a constant in the code of its own hot nest; the text is writable for that moment only. */
#include "witness.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
extern char nest_imm[];
__attribute__((noinline)) static void nest(double *x, double *y, double *z, long n) {
    for (long i = 0; i < n; i++)
        for (long j = 0; j < n; j++) {
            double s = 0;
            for (long k = 0; k < n; k++) s += x[i * n + k] * y[k * n + j];
            long m;
            __asm__ volatile(".globl nest_imm\n movq $3,%0\nnest_imm:" : "=r"(m));
            z[i * n + j] = s * 0 + (double)m;
        }
}
int main(void) {
    long n = 400, before = 0, after = 0;
    double *x = calloc(n * n, 8), *y = calloc(n * n, 8), *z = calloc(n * n, 8);
    char *p = nest_imm - 4, *page = (char *)((uintptr_t)p & ~4095ul);
    witness(nest);
    for (int i = 0; i < 3 || awaited(); i++) nest(x, y, z, n);
    for (long q = 0; q < n * n; q++) before += (long)z[q];
    acts();
    mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC);
    memcpy(p, &(int){1000}, 4);
    mprotect(page, 8192, PROT_READ | PROT_EXEC);
    nest(x, y, z, n);
    for (long q = 0; q < n * n; q++) after += (long)z[q];
    printf("before %ld after %ld\n", before, after);
    return 0;
}
