/* Two loops, one after the other; behind calls that do not return lies a part of the first one. f: the call is exit; g: it
   is a function that only calls exit; h: a function that may return, and does not. */
#include <stdlib.h>
#include <unistd.h>

#define LOOPS(name, leave)                                                                                             \
    __asm__(".text\n.globl " #name "\n.type " #name ", @function\n"                                                   \
            #name ": sub $8, %rsp\n mov %rdi, %rcx\n"                                                                  \
            "1: test $7, %cl\n jz 4f\n2: dec %rcx\n jnz 1b\n"                                                         \
            "3: dec %rsi\n jnz 3b\n mov %rdx, %rdi\n call " leave "\n"                                                \
            "4: add $0, %rax\n jmp 2b\n.size " #name ", . - " #name "\n")

LOOPS(f, "exit@plt");
LOOPS(g, "end");
LOOPS(h, "perhaps");
void f(long first, long second, long how), g(long first, long second, long how), h(long first, long second, long how);

__asm__(".type end, @function\nend: sub $8, %rsp\n call exit@plt\n.size end, . - end\n");

void perhaps(long how)
{
    if (how)
        _exit((int)how);
}

int main(int argc, char **argv)
{
    (argc < 2 ? f : *argv[1] == 'g' ? g : h)(100, 200, 3);
    return 1;
}
