/* A program changes a constant in a small function that its hot nest calls; the nest itself stays as it is. */
#include "witness.h"
#include <stdint.h>
#include <sys/mman.h>
extern char callee_imm[];
__attribute__((noinline, noclone)) static double weighed(double x, double y) {
    int m;
    __asm__(".globl callee_imm\n movl $3,%0\ncallee_imm:" : "=r"(m));
    return x * y + m;
}
__attribute__((noinline)) static void nest(double *x, double *y, double *z, long n) {
    for (long i = 0; i < n; i++)
        for (long j = 0; j < n; j++)
            for (long k = 0; k < n; k++) z[i * n + k] += weighed(x[i * n + j], y[j * n + k]);
}
static void changed(int to) {
    char *p = callee_imm - 4, *page = (char *)((uintptr_t)p & ~4095ul);
    mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC);
    memcpy(p, &to, 4);
    mprotect(page, 8192, PROT_READ | PROT_EXEC);
}
int main(void) {
    long n = 300;
    double *x = calloc(n * n, 8), *y = calloc(n * n, 8), *z = calloc(n * n, 8);
    witness(nest);
    for (int r = 0; r < 3 || awaited(); r++) nest(x, y, z, n);
    acts();
    for (int value = 1000; value >= 3; value -= 997) {
        changed(value);
        memset(z, 0, n * n * 8);
        nest(x, y, z, n);
        printf("%g\n", z[n * n / 2 + 77]);
    }
    return 0;
}
