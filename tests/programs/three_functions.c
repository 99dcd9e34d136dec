/* Three functions, and calls into the C library, whose functions are found at the first call of each, or before. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define APART __attribute__((noinline, noipa))

APART static long inner(long n)
{
    volatile long sum = 0;
    for (long i = 0; i < n; i++)
        sum += i;
    return sum;
}

APART static long outer(long n)
{
    long sum = 0;
    char text[64];
    for (long i = 0; i < n; i++)
        sum += inner(i);
    snprintf(text, sizeof text, "%ld", sum);
    return sum + (long)strlen(text);
}

int main(int arguments, char **values)
{
    (void)values;
    printf("%ld\n", outer(100) + inner(2000));
    char *text = malloc(100);
    memset(text, arguments, 100);
    puts(text[5] == 1 ? "one" : "two");
    free(text);
    return 0;
}
