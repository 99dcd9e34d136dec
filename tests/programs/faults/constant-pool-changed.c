/* A number that lies in read-only data is made writable and changed; the code of the nest stays as it is. */
#include "witness.h"
#include <stdint.h>
#include <sys/mman.h>
__asm__(".section .rodata\n.globl factor\n.balign 8\nfactor: .double 0.5\n.text\n");
extern const double factor;
__attribute__((noinline)) static void nest(double *x, double *y, double *z, long n) {
    for (long i = 0; i < n; i++)
        for (long j = 0; j < n; j++)
            for (long k = 0; k < n; k++) z[i * n + j] += x[i * n + k] * y[k * n + j] * factor;
}
int main(void) {
    long n = 300;
    double *x = calloc(n * n, 8), *y = calloc(n * n, 8), *z = calloc(n * n, 8);
    for (long i = 0; i < n * n; i++) x[i] = i % 7, y[i] = i % 11;
    witness(nest);
    for (int r = 0; r < 3 || awaited(); r++) nest(x, y, z, n);
    acts();
    char *page = (char *)((uintptr_t)&factor & ~4095ul);
    for (int value = 64; value >= 1; value /= 64) {
        mprotect(page, 4096, PROT_READ | PROT_WRITE);
        *(volatile double *)&factor = value;
        mprotect(page, 4096, PROT_READ);
        memset(z, 0, n * n * 8);
        nest(x, y, z, n);
        printf("%g\n", z[n * n / 2 + 77]);
    }
    return 0;
}
