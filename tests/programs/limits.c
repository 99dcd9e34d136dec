/* A program that prints its limits: of the stack, the address space and the data. */
#include <stdio.h>
#include <sys/resource.h>

int main(void)
{
    static const int kinds[] = {RLIMIT_STACK, RLIMIT_AS, RLIMIT_DATA};
    for (int i = 0; i < 3; i++) {
        struct rlimit limit;
        getrlimit(kinds[i], &limit);
        printf("%ld %ld\n", (long)limit.rlim_cur, (long)limit.rlim_max);
    }
    return 5;
}
