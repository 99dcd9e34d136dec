/* Matrix products on the same data, over and over, until SIGUSR1 comes: a program that never ends before a test is done
   with it. Prints the last product and how many differed from the first. usage: program [n [MODE]]
     plain       nothing else
     seccomp     under a filter that allows everything
     hidden      it has made itself non-dumpable
     ended       a second thread has run and ended
     asleep      a second thread sleeps all the time
     exceptions  invalid floating-point operations are trapped (none happens) */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <xmmintrin.h>

#include "matrix.h"

#define LONGEST_SECONDS 280

static volatile sig_atomic_t told;

static void on_word(int number)
{
    (void)number;
    told = 1;
}

static void *sleep_on(void *forever)
{
    if (forever)
        pause();
    return 0;
}

static int start_thread(int forever)
{
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&thread, 0, sleep_on, forever ? &before : 0);
    pthread_sigmask(SIG_SETMASK, &before, 0);
    return failed || (!forever && pthread_join(thread, 0));
}

static int allow_everything(void)
{
    struct sock_filter code[] = {{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
    struct sock_fprog filter = {1, code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

/* 0 when the process is now in the state asked for. */
static int enter(const char *mode)
{
    if (!strcmp(mode, "plain"))
        return 0;
    if (!strcmp(mode, "seccomp"))
        return allow_everything();
    if (!strcmp(mode, "hidden"))
        return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    if (!strcmp(mode, "ended") || !strcmp(mode, "asleep"))
        return start_thread(mode[0] == 'a');
    if (!strcmp(mode, "exceptions")) {
        _mm_setcsr(_mm_getcsr() & ~_MM_MASK_INVALID);
        return 0;
    }
    return 1;
}

void dgemm(int n, REAL *a, REAL *b, REAL *c)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            for (int k = 0; k < n; k++)
                c[i * n + j] += a[i * n + k] * b[k * n + j];
}

int main(int argc, char **argv)
{
    int n = parse_size(argc > 1 ? argv[1] : "512");
    size_t count = (size_t)n * n;
    REAL *a = allocate(count), *b = allocate(count), *c = allocate(count);
    fill(a, count, 1);
    fill(b, count, 2);
    signal(SIGUSR1, on_word);
    if (enter(argc > 2 ? argv[2] : "plain")) {
        fprintf(stderr, "%s: not possible\n", argv[2]);
        return 2;
    }
    alarm(LONGEST_SECONDS);
    fprintf(stderr, "ready %d\n", (int)getpid());
    uint64_t first = 0, different = 0;
    for (int call = 0; call < 2 || !told; call++) {
        fill(c, count, 3);
        dgemm(n, a, b, c);
        uint64_t result = hash(HASH_START, c, count);
        if (!call)
            first = result;
        different += result != first;
    }
    print_matrix(c, n, 0);
    printf("different %llu\n", (unsigned long long)different);
    return 3;
}
