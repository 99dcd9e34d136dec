/* A program that makes tasks in other ways than fork. The first argument names how.
   untraced, untraced3: by clone and clone3, in the same memory, not to be traced; untraced-fork: a process of its own;
   shared: in the same memory; vfork; spawn; clone3: a process; numbers: with process numbers of its own (unshare);
   me: the program asks to be traced by its parent; attach: an untraced task traces the program. */
#define _GNU_SOURCE
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CLONE_UNTRACED_ 0x00800000
extern char **environ;
static volatile long result;

__attribute__((noinline, noipa)) static long work(long n)
{
    long found = 0;
    for (long i = 0; i < n; i++)
        found += i;
    return found;
}

static int child(void *argument)
{
    result = work((long)(intptr_t)argument);
    return 9;
}

static int tracer(void *argument)
{
    pid_t traced = (pid_t)(intptr_t)argument;
    result = ptrace(PTRACE_ATTACH, traced, 0, 0);
    int status;
    if (!result && waitpid(traced, &status, __WALL) == traced)
        result = WIFSTOPPED(status) ? 100 + WSTOPSIG(status) : 99;
    ptrace(PTRACE_DETACH, traced, 0, 0);
    return 8;
}

static void await(pid_t pid)
{
    int status = -1;
    if (pid < 0 || waitpid(pid, &status, __WALL) != pid)
        abort();
    printf("%x %ld\n", status, result);
}

static pid_t by_clone3(unsigned long flags)
{
    struct clone_args arguments = {.flags = flags, .exit_signal = SIGCHLD};
    return syscall(SYS_clone3, &arguments, sizeof arguments);
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "untraced";
    char *stack = (char *)malloc(1 << 20) + (1 << 20), *arguments[] = {argv[0], (char *)"plain", 0};
    setbuf(stdout, 0);
    pid_t pid;
    if (!strcmp(how, "untraced"))
        await(clone(child, stack, CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_UNTRACED_, (void *)100));
    else if (!strcmp(how, "untraced-fork"))
        await(clone(child, stack, CLONE_UNTRACED_ | SIGCHLD, (void *)100));
    else if (!strcmp(how, "untraced3")) {
        if (!(pid = by_clone3(CLONE_UNTRACED_)))
            _exit(work(10));
        await(pid);
    } else if (!strcmp(how, "clone3")) {
        if (!(pid = by_clone3(0)))
            _exit(work(10));
        await(pid);
    } else if (!strcmp(how, "shared"))
        await(clone(child, stack, CLONE_VM | SIGCHLD, (void *)100));
    else if (!strcmp(how, "vfork")) {
        if (!(pid = vfork())) {
            result = 5;
            _exit(3);
        }
        await(pid);
    } else if (!strcmp(how, "spawn")) {
        if (posix_spawn(&pid, "/proc/self/exe", 0, 0, arguments, environ))
            abort();
        await(pid);
    } else if (!strcmp(how, "numbers")) {
        if (unshare(CLONE_NEWPID))
            return 77;
        if (!(pid = fork())) {
            printf("%d\n", getpid());
            _exit(work(10));
        }
        await(pid);
    } else if (!strcmp(how, "me"))
        printf("%ld\n", ptrace(PTRACE_TRACEME, 0, 0, 0));
    else if (!strcmp(how, "attach")) {
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
        await(clone(tracer, stack, CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_UNTRACED_, (void *)(intptr_t)getpid()));
    }
    printf("%ld\n", work(1000));
    return 4;
}
