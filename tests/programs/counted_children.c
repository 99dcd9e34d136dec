/* Children: forked inside loops and calls, by children, by a thread; one that executes this program, by fork and by
   posix_spawn. Each does work whose counts are known. usage: program [work N] */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static volatile int sum;

__attribute__((noinline)) static void work(int n)
{
    for (int i = 0; i < n; i++) {
        sum += i;
        __asm__ volatile("# one at a time: %=");
    }
}

static void await(pid_t pid)
{
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        abort();
    printf("%d\n", WEXITSTATUS(status));
    fflush(stdout);
}

/* Goes on in parent and child alike: three rounds in the parent, those from the fork on in each child. */
__attribute__((noinline)) static pid_t rounds(int forks)
{
    pid_t pid = -1;
    for (int round = 0; round < 3; round++) {
        if (round == 1 && forks)
            pid = fork();
        work(pid ? 10 : 100);
    }
    return pid;
}

__attribute__((noinline)) static void family(void)
{
    pid_t child = rounds(1);
    if (!child) {
        pid_t grandchild = rounds(1);
        if (!grandchild)
            _exit(7);
        await(grandchild);
        exit(8);
    }
    await(child);
}

static void *from_a_thread(void *unused)
{
    pid_t pid = fork();
    if (!pid) {
        work(1000);
        _exit(9);
    }
    await(pid);
    return unused;
}

static void on_signal(int number)
{
    work(number);
}

int main(int argc, char **argv)
{
    if (argc > 2 && !strcmp(argv[1], "work")) {
        work(atoi(argv[2]));
        return 3;
    }
    family();
    pthread_t thread;
    pthread_create(&thread, 0, from_a_thread, 0);
    pthread_join(thread, 0);
    pid_t pid = fork();
    if (!pid)
        execl(argv[0], argv[0], "work", "20000", (char *)0);
    await(pid);
    char *arguments[] = {argv[0], "work", "30000", 0};
    posix_spawn(&pid, argv[0], 0, 0, arguments, environ);
    await(pid);
    signal(SIGUSR1, on_signal);
    pid = fork();
    if (!pid) {
        raise(SIGUSR1);
        _exit(4);
    }
    await(pid);
    return 0;
}
