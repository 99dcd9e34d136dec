/* A loop of the program, and the same one written while it runs. usage: program [rounds] */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const unsigned char code[] = {0x89, 0xf9, 0xff, 0xc9, 0x75, 0xfc, 0xc3};  // mov ecx, edi; dec ecx; jnz; ret

__attribute__((noipa)) void own(uint32_t rounds)
{
    __asm__ volatile("1: dec %0; jnz 1b" : "+r"(rounds));
}

int main(int argc, char **argv)
{
    uint32_t rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000000000;
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(page, code, sizeof code);
    own(rounds);
    ((void (*)(uint32_t))page)(rounds);
    puts("done");
    return 0;
}
