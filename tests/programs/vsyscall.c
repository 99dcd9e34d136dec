/* Asks for the time as programs did before the vDSO was there: by an address that is the kernel's.
 * usage: program times */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv)
{
    time_t (*ask)(time_t *) = (time_t (*)(time_t *))0xffffffffff600400;
    long right = 0;
    for (long i = argc > 1 ? atol(argv[1]) : 1; i > 0; i--)
        right += ask(NULL) > 0;
    printf("%ld\n", right);
    return 0;
}
