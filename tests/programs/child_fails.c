/* A child calls a function that nobody else calls, then its parent others. */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define ALONE __attribute__((noinline, noclone))

static volatile long sink;

ALONE void in_child(long n)
{
    for (long i = 0; i < n; i++)
        sink += i;
}

ALONE void behind(long n)
{
    for (long i = 0; i < n; i++)
        sink -= i;
}

int main(void)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        in_child(3);
        _exit(4);
    }
    waitpid(child, &status, 0);
    behind(5);
    behind(6);
    printf("%d %ld\n", WEXITSTATUS(status), sink);
    return 0;
}
