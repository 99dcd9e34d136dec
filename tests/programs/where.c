/* Prints the live address of one of its functions, then its memory map. `bare` has a symbol and no unwind entry. */
#include <stdio.h>

__asm__(".text\n.globl bare\n.type bare, @function\nbare: nop\nret\n.size bare, . - bare\n");

__attribute__((noinline)) void landmark(void)
{
    __asm__ volatile("");
}

int main(void)
{
    char line[512];
    landmark();
    printf("%p\n", (void *)landmark);
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        fputs(line, stdout);
    return 0;
}
