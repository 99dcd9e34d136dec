/* Code that was made at run time is changed: a constant in it is another one from then on. */
#include "witness.h"
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#define N 512
/* code made at run time, as a JIT does; later one constant in it is changed (write, then execute: never both) */
extern char begin[], patchme[], end[];
__asm__(".intel_syntax noprefix\nbegin: mov r8, rcx\n"
"1: mov r9, rcx; mov r10, rdx\n"
"2: mov r11, rcx; mov rax, rsi; mov rbx, r10; pxor xmm0, xmm0\n"
"3: .byte 0xf2, 0x0f, 0x10, 0x88\npatchme: .long 0\n"   /* movsd xmm1, [rax + 0] */
"mulsd xmm1, [rbx]; addsd xmm0, xmm1; add rax, 8; add rbx, 512*8; sub r11, 1; jnz 3b\n"
"movsd [rdi], xmm0; add rdi, 8; add r10, 8; sub r9, 1; jnz 2b\n"
"add rsi, 512*8; sub r8, 1; jnz 1b; ret\nend:\n.att_syntax\n");
static void call(void *f, double *c, double *a, double *b) {
    register long n __asm__("rcx") = N; register double *pc __asm__("rdi") = c, *pa __asm__("rsi") = a, *pb __asm__("rdx") = b;
    __asm__ volatile("push %%rbp; push %%rbx; push %%r12; call *%%rax; pop %%r12; pop %%rbx; pop %%rbp" : "+r"(n), "+r"(pc), "+r"(pa), "+r"(pb), "+a"(f) :: "r8", "r9", "r10", "r11", "memory", "cc");
}
int main(int argc, char **argv) {
    char *f = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(f, begin, end - begin);
    mprotect(f, 4096, PROT_READ | PROT_EXEC);
    double *a = calloc(N * N + 9, 8), *b = malloc(N * N * 8), *c = malloc(N * N * 8);
    for (int i = 0; i < N * N; i++) a[i] = i % 1013, b[i] = i % 997;
    witness_bytes_of(f, end - begin);
    for (int r = 0; r < 3 || awaited(); r++) call(f, c, a, b);
    acts();
    double before = c[77];
    mprotect(f, 4096, PROT_READ | PROT_WRITE);
    *(int *)(f + (patchme - begin)) = 8;
    mprotect(f, 4096, PROT_READ | PROT_EXEC);
    call(f, c, a, b);
    printf("%g\n", c[77] - before);
    return 0;
}
