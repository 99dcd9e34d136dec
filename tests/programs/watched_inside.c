/* A loop that is also entered behind its header, by an indirect jump of another function. usage: watched_inside count */
#include <stdio.h>
#include <stdlib.h>

long grow(long *first, long count), leap(long *first, long count);

__asm__(".text\n"
        ".type grow, @function\n"
        "grow:   xor %eax, %eax\n"
        "next:   mov (%rdi,%rax,8), %rcx\n" /* reads what the iteration before wrote */
        "        test $1, %al\n"
        "        jnz inside\n"
        "        mov (%rdi,%rax,8), %rdx\n"
        "inside: add $1, %rcx\n"
        "        mov %rcx, 8(%rdi,%rax,8)\n"
        "        mov %rcx, %rax\n" /* no register that grows steadily */
        "        cmp %rsi, %rcx\n"
        "        jb next\n"
        "        ret\n"
        ".size grow, . - grow\n"
        ".type leap, @function\n"
        "leap:   xor %eax, %eax\n"
        "        xor %ecx, %ecx\n"
        "        lea inside(%rip), %r8\n"
        "        jmp *%r8\n"
        ".size leap, . - leap\n");

int main(int argc, char **argv)
{
    long count = argc > 1 ? atol(argv[1]) : 1000, *all = calloc(count + 1, sizeof *all);
    printf("%ld\n", grow(all, count) + all[count]);
    printf("%ld\n", leap(all, count) + all[count]);
    return 0;
}
