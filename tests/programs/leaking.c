/* A program that leaks memory if it has an argument: in many places, because some stay in dead words of the stack. */
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline, noipa)) static void *work(int leaks)
{
    void *volatile found = 0;
    for (int i = 0; i < 100; i++) {
        found = malloc(77);
        if (!leaks)
            free(found);
    }
    found = 0;
    return found;
}

int main(int argc, char **argv)
{
    (void)argv;
    printf("%d\n", work(argc > 1) != 0);
    return 7;
}
