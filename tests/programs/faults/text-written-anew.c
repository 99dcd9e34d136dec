/* A live patcher writes the whole function anew, first as it was at the start of the program, then with another constant:
   the five bytes of a patch at the header go with it. */
#include "witness.h"
#include <stdint.h>
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
__attribute__((noinline)) static void behind(void) { __asm__ volatile(""); }
static void write_anew(const unsigned char *bytes, size_t size) {
    char *page = (char *)((uintptr_t)nest & ~4095ul);
    mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC);
    memcpy((void *)nest, bytes, size);
    mprotect(page, 8192, PROT_READ | PROT_EXEC);
}
int main(void) {
    long n = 400;
    size_t size = nest_imm + 64 - (char *)nest;
    unsigned char bytes[4096];
    double *x = calloc(n * n, 8), *y = calloc(n * n, 8), *z = calloc(n * n, 8);
    memcpy(bytes, (void *)nest, size);
    witness(nest);
    for (int i = 0; i < 3 || awaited(); i++) nest(x, y, z, n);
    acts();
    for (int value = 3; value < 3000; value += 997) {
        memcpy(bytes + (nest_imm - 4 - (char *)nest), &value, 4);
        write_anew(bytes, size);
        for (int r = 0; r < 3; r++) nest(x, y, z, n);
        printf("%g\n", z[n * n / 2 + 77]);
    }
    return 0;
}
