/* A program that leaks memory if it has an argument. */
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline, noipa)) static void *work(int leaks)
{
    void *volatile found = malloc(leaks ? 77 : 10);
    if (!leaks)
        free(found);
    found = 0;
    return found;
}

int main(int argc, char **argv)
{
    (void)argv;
    printf("%d\n", work(argc > 1) != 0);
    return 7;
}
