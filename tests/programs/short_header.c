/* A matrix product whose outer loop header is two bytes long: the inner loop begins where a five-byte patch would end.
 * usage: program [n] */
#include "matrix.h"

void dgemm(long n, REAL *a, REAL *b, REAL *c);

__asm__(
    ".globl dgemm\n"
    ".type dgemm, @function\n"
    "dgemm:\n"
    "    xorl %r8d, %r8d\n" /* i */
    "    movq %rdi, %r11\n"
    "    shlq $3, %r11\n" /* bytes of a row */
    "1:  xorl %eax, %eax\n" /* j */
    "2:  movsd (%rcx,%rax,8), %xmm0\n"
    "    leaq (%rdx,%rax,8), %r9\n"
    "    xorl %r10d, %r10d\n" /* k */
    "3:  movsd (%rsi,%r10,8), %xmm1\n"
    "    mulsd (%r9), %xmm1\n"
    "    addsd %xmm1, %xmm0\n"
    "    addq %r11, %r9\n"
    "    addq $1, %r10\n"
    "    cmpq %rdi, %r10\n"
    "    jne 3b\n"
    "    movsd %xmm0, (%rcx,%rax,8)\n"
    "    addq $1, %rax\n"
    "    cmpq %rdi, %rax\n"
    "    jne 2b\n"
    "    addq %r11, %rsi\n"
    "    addq %r11, %rcx\n"
    "    addq $1, %r8\n"
    "    cmpq %rdi, %r8\n"
    "    jne 1b\n"
    "    ret\n"
    ".size dgemm, .-dgemm\n");

int main(int argc, char **argv)
{
    int n = parse_size(argc > 1 ? argv[1] : "512");
    size_t count = (size_t)n * n;
    REAL *a = allocate(count), *b = allocate(count), *c = allocate(count);
    fill(a, count, 1);
    fill(b, count, 2);
    fill(c, count, 3);
    dgemm(n, a, b, c);
    print_matrix(c, n, 0);
    return 0;
}
