/* Children that are traced: by their own wish, forked or sharing memory until then; and some that their parent seizes
   while they work. Whether each could be is printed. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int sum;

static void work(void)
{
    for (int i = 0; i < 5000; i++)
        sum += i;
}

/* How often the child stops until it ends, and its exit code. */
static void follow(const char *what, pid_t pid)
{
    int status, stops = 0;
    while (waitpid(pid, &status, __WALL) == pid && WIFSTOPPED(status)) {
        stops++;
        ptrace(PTRACE_CONT, pid, 0, WSTOPSIG(status) == SIGTRAP || WSTOPSIG(status) == SIGSTOP ? 0 : WSTOPSIG(status));
    }
    printf("%s %d %d\n", what, stops, WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
}

static void seize(void)
{
    int ends[2];
    if (pipe(ends) || fcntl(ends[0], F_SETFL, O_NONBLOCK))
        abort();
    pid_t pid = fork();
    if (!pid) {
        char byte;
        do
            work();
        while (read(ends[0], &byte, 1) < 0);
        work();
        _exit(6);
    }
    printf("seized %d\n", ptrace(PTRACE_SEIZE, pid, 0, 0) == 0);
    ptrace(PTRACE_INTERRUPT, pid, 0, 0);
    write(ends[1], "", 1);
    follow("seized", pid);
    close(ends[0]);
    close(ends[1]);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return 5;
    setbuf(stdout, 0);
    pid_t pid = fork();
    if (!pid) {
        int failed = ptrace(PTRACE_TRACEME, 0, 0, 0) < 0;
        raise(SIGSTOP);
        work();
        _exit(failed);
    }
    follow("forked", pid);
    pid = vfork();
    if (!pid) {
        if (ptrace(PTRACE_TRACEME, 0, 0, 0) < 0)
            _exit(1);
        execl(argv[0], argv[0], "child", (char *)0);
        _exit(2);
    }
    follow("shared", pid);
    for (int n = 0; n < 8; n++)
        seize();
    work();
    return 0;
}
