/* A program that confines itself by seccomp. The first argument names how.
   filter: only write and exit_group may be called; strict; all-but-one: everything but kill may be called, which is what
   memopt asks by; poll: everything but poll; prctl: by prctl(2); child: a forked child does, its parent works on;
   thread: one thread confines all (TSYNC) while another one works; executed: the filter is there before execve;
   error: everything but kill may be called, which fails with EPERM; trap: a handler is called for getppid. */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, value)
#define IF(number, value) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), RETURN(value)
#define LOAD BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))

static volatile int stop;
static volatile long sum;

__attribute__((noinline, noipa)) static long work(int n)
{
    long found = 0;
    for (int i = 0; i < n; i++)
        found += i ^ n;
    return found;
}

/* Met for the first time when the program is confined. */
__attribute__((noinline, noipa)) static long later(int n)
{
    return work(n) + work(n + 1);
}

static void put(long number)
{
    char text[24];
    int at = sizeof text;
    text[--at] = '\n';
    do
        text[--at] = '0' + number % 10;
    while (number /= 10);
    if (write(1, text + at, sizeof text - at) < 0)
        abort();
}

static void install(const struct sock_filter *filter, size_t size, int flags, int by_prctl)
{
    struct sock_fprog program = {size / sizeof *filter, (struct sock_filter *)filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        abort();
    if (by_prctl ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)
                 : syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program))
        abort();
}

static void forbid(int number, unsigned value, int flags, int by_prctl)
{
    const struct sock_filter filter[] = {LOAD, IF(number, value), RETURN(SECCOMP_RET_ALLOW)};
    install(filter, sizeof filter, flags, by_prctl);
}

static void forbid_asking(unsigned value, int flags)
{
    const struct sock_filter filter[] = {LOAD, IF(SYS_kill, value), IF(SYS_tgkill, value), IF(SYS_poll, value),
                                         RETURN(SECCOMP_RET_ALLOW)};
    install(filter, sizeof filter, flags, 0);
}

static void trapped(int number)
{
    (void)number;
    sum += 1000;
}

static void *loop(void *argument)
{
    while (!stop)
        sum = work(1000);
    return argument;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "filter";
    put(work(100));
    if (!strcmp(how, "filter")) {
        const struct sock_filter filter[] = {LOAD, IF(SYS_write, SECCOMP_RET_ALLOW), IF(SYS_exit_group, SECCOMP_RET_ALLOW),
                                             RETURN(SECCOMP_RET_KILL_PROCESS)};
        install(filter, sizeof filter, 0, 0);
    } else if (!strcmp(how, "strict")) {
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0))
            abort();
        put(later(200));
        syscall(SYS_exit, 5);
    } else if (!strcmp(how, "all-but-one"))
        forbid(SYS_kill, SECCOMP_RET_KILL_PROCESS, 0, 0);
    else if (!strcmp(how, "poll"))
        forbid(SYS_poll, SECCOMP_RET_KILL_PROCESS, 0, 0);
    else if (!strcmp(how, "prctl"))
        forbid(SYS_kill, SECCOMP_RET_KILL_PROCESS, 0, 1);
    else if (!strcmp(how, "error"))
        forbid_asking(SECCOMP_RET_ERRNO | 1, 0);
    else if (!strcmp(how, "trap")) {
        signal(SIGSYS, trapped);
        forbid(SYS_getppid, SECCOMP_RET_TRAP, 0, 0);
        syscall(SYS_getppid);
        put(sum);
    } else if (!strcmp(how, "child")) {
        pid_t pid = fork();
        if (!pid) {
            forbid_asking(SECCOMP_RET_KILL_PROCESS, 0);
            put(later(300));
            _exit(4);
        }
        int status;
        if (waitpid(pid, &status, 0) != pid)
            abort();
        put(status);
    } else if (!strcmp(how, "thread")) {
        pthread_t thread;
        pthread_create(&thread, 0, loop, 0);
        while (!sum)
            ;
        forbid_asking(SECCOMP_RET_KILL_PROCESS, SECCOMP_FILTER_FLAG_TSYNC);
        put(later(400));
        stop = 1;
        pthread_join(thread, 0);
        put(sum);
    } else if (!strcmp(how, "executed")) {
        forbid_asking(SECCOMP_RET_KILL_PROCESS, 0);
        execl("/proc/self/exe", argv[0], "plain", (char *)0);
        abort();
    }
    put(later(500));
    return 6;
}
