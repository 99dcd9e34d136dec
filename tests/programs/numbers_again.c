/* Threads and processes that come and go. The first argument names how, the second one how many.
   threads: one after the other; together: all at once; waves: ten at a time; processes: each with the number of the
   first one, as far as the system lets the program choose numbers. */
#define _GNU_SOURCE
#include <linux/sched.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_barrier_t all;
static int together;
static volatile long sums[1024];

__attribute__((noinline, noipa)) static void *work(void *argument)
{
    long k = (long)argument;
    if (together)
        pthread_barrier_wait(&all);
    for (long i = 0; i < 100; i++)
        sums[k] += i * k;
    if (together)
        pthread_barrier_wait(&all);
    return 0;
}

static void run(long first, long count)
{
    static pthread_t threads[1024];
    for (long k = first; k < first + count; k++)
        if (pthread_create(&threads[k], 0, work, (void *)k))
            abort();
    for (long k = first; k < first + count; k++)
        pthread_join(threads[k], 0);
}

static long child(pid_t wanted)
{
    struct clone_args arguments = {.exit_signal = SIGCHLD, .set_tid = wanted ? (uintptr_t)&wanted : 0,
                                   .set_tid_size = wanted != 0};
    fflush(stdout);
    pid_t pid = syscall(SYS_clone3, &arguments, sizeof arguments);
    if (!pid) {
        work((void *)7);
        _exit(sums[7] % 251);
    }
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return -1;
    printf("%d\n", WEXITSTATUS(status));
    return pid;
}

int main(int argc, char **argv)
{
    long count = argc > 2 ? atol(argv[2]) : 1, sum = 0;
    if (!strcmp(argv[1], "processes")) {
        pid_t first = child(0);
        for (long k = 1; k < count; k++)
            if (child(first) != first || first < 0)
                return 77;
        return 0;
    }
    if (!strcmp(argv[1], "together")) {
        together = 1;
        pthread_barrier_init(&all, 0, count);
        run(0, count);
    } else if (!strcmp(argv[1], "waves"))
        for (long k = 0; k < count; k += 10)
            run(k, 10);
    else
        for (long k = 0; k < count; k++)
            run(k, 1);
    for (long k = 0; k < count; k++)
        sum += sums[k];
    printf("%ld\n", sum);
    return 3;
}
