/* A loop that goes on, every other time, at a handler that no jump of its function leads to: as OCaml catches
   exceptions. */
#include <stdio.h>

__asm__(".text\n.globl handled\n.type handled, @function\n"
        "handled: xor %eax, %eax\n"
        "1: lea 3f(%rip), %rdx\n mov %rsp, %rcx\n test $1, %dil\n jz 2f\n call raise\n"
        "2: inc %rax\n jmp 4f\n"
        "3: add $2, %rax\n"
        "4: dec %rdi\n jnz 1b\n ret\n.size handled, . - handled\n"
        ".type raise, @function\nraise: mov %rcx, %rsp\n jmp *%rdx\n.size raise, . - raise\n");
long handled(long times);

int main(void)
{
    printf("%ld\n", handled(1000));
}
