/* A matrix product between forks: the program counts every child that waitpid and SIGCHLD show it. usage: program [n] */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "matrix.h"

static volatile sig_atomic_t signals;

static void on_child(int number)
{
    (void)number;
    signals++;
}

void dgemm(int n, REAL *a, REAL *b, REAL *c)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            for (int k = 0; k < n; k++)
                c[i * n + j] += a[i * n + k] * b[k * n + j];
}

static int make_child(void)
{
    sigset_t chld, before;
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    sigprocmask(SIG_BLOCK, &chld, &before);
    if (!fork())
        _exit(0);
    int seen = signals;
    while (signals == seen)
        sigsuspend(&before);
    sigprocmask(SIG_SETMASK, &before, 0);
    int children = 0;
    while (waitpid(-1, 0, WNOHANG) > 0)
        children++;
    return children;
}

int main(int argc, char **argv)
{
    int n = parse_size(argc > 1 ? argv[1] : "512");
    size_t count = (size_t)n * n;
    REAL *a = allocate(count), *b = allocate(count), *c = allocate(count);
    fill(a, count, 1);
    fill(b, count, 2);
    fill(c, count, 3);
    struct sigaction action = {.sa_handler = on_child};
    sigaction(SIGCHLD, &action, 0);
    int children = make_child();
    children += make_child();
    dgemm(n, a, b, c);
    children += make_child();
    int more = waitpid(-1, 0, WNOHANG | __WALL);
    printf("children %d signals %d more %d %s\n", children, (int)signals, more, strerror(errno));
    print_matrix(c, n, 0);
    return 0;
}
