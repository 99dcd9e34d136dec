/* Children that stop, go on, are killed, abort, fault and end: what their parent is told of it. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void tell(pid_t child, int flags)
{
    int status = 0;
    pid_t found = waitpid(child, &status, flags);
    printf("%d stopped %d continued %d exit %d signal %d\n", found == child, WIFSTOPPED(status) ? WSTOPSIG(status) : 0,
           WIFCONTINUED(status) != 0, WIFEXITED(status) ? WEXITSTATUS(status) : -1,
           WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

static void work(void)
{
    for (volatile int i = 0; i < 100000; i++)
        ;
}

int main(void)
{
    setbuf(stdout, 0);
    char byte;
    int ends[2];
    if (pipe(ends))
        abort();
    pid_t child = fork();
    if (!child) {
        work();
        raise(SIGSTOP);
        if (read(ends[0], &byte, 1) != 1)
            abort();
        work();
        _exit(9);
    }
    tell(child, WUNTRACED);
    kill(child, SIGCONT);
    tell(child, WCONTINUED);
    if (write(ends[1], "", 1) != 1)
        abort();
    tell(child, 0);
    if (!(child = fork()))
        pause();
    usleep(100000);
    kill(child, SIGKILL);
    tell(child, 0);
    if (!(child = fork()))
        abort();
    tell(child, 0);
    if (!(child = fork()))
        *(volatile int *)8 = 1;
    tell(child, 0);
    if (!(child = fork()))
        _exit(3);
    siginfo_t told;
    waitid(P_PID, child, &told, WEXITED | WNOWAIT);
    printf("code %d status %d\n", told.si_code, told.si_status);
    tell(child, 0);
    signal(SIGCHLD, SIG_IGN);
    if (!(child = fork()))
        _exit(3);
    tell(child, 0);
    return 0;
}
