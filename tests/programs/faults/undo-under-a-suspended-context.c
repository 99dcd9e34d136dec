/* A version is taken out while a suspended context stands in it: two tasks that a timer switches between.
   Usage: PAUSE STAY GO, names of files. When PAUSE comes, the first task is left where it is while STAY is there; the
   rounds go on while GO is there. */
#include "witness.h"
#include <signal.h>
#include <sys/time.h>
#include <ucontext.h>
#define N 300
static double a[N * N], b[N * N], c[2][N * N], want[N * N];
__attribute__((noinline)) void product(double *c, const double *a, const double *b, long n) {
    for (long i = 0; i < n; i++)
        for (long j = 0; j < n; j++) {
            double s = 0;
            for (long k = 0; k < n; k++) s += a[i * n + k] * b[k * n + j];
            c[i * n + j] = s;
        }
}
static ucontext_t task[2];
static volatile int now, bad;
static char *pause_file, *stay, *go;
static int there(const char *file) { return access(file, F_OK) == 0; }
static void handler(int s) { int me = now; now = !me; swapcontext(&task[me], &task[!me]); }
static void round_of(int me) {
    memset(c[me], 0, sizeof c[me]);
    product(c[me], a, b, N);
    bad += memcmp(c[me], want, sizeof want) != 0;
}
static void other(void) {
    for (;;) {
        if (there(pause_file)) {
            sigset_t alarm;
            sigemptyset(&alarm);
            sigaddset(&alarm, SIGALRM);
            sigprocmask(SIG_BLOCK, &alarm, 0);
            unlink(pause_file);
            acts();
            while (there(stay))
                for (volatile int q = 0; q < 100000; q++);
            sigprocmask(SIG_UNBLOCK, &alarm, 0);
        }
        round_of(1);
    }
}
int main(int argc, char **argv) {
    static char stack[1 << 18] __attribute__((aligned(64)));
    pause_file = argv[1], stay = argv[2], go = argv[3];
    for (int i = 0; i < N * N; i++) a[i] = i * 7919 % 1013 / 3.0, b[i] = i * 104729 % 997 / 7.0;
    witness(product);
    product(want, a, b, N);
    getcontext(&task[1]);
    task[1].uc_stack.ss_sp = stack;
    task[1].uc_stack.ss_size = sizeof stack;
    sigemptyset(&task[1].uc_sigmask);
    makecontext(&task[1], other, 0);
    signal(SIGALRM, handler);
    struct itimerval t = {{0, 3000}, {0, 3000}};
    setitimer(ITIMER_REAL, &t, 0);
    while (there(go)) round_of(0);
    printf("%d wrong\n", bad);
    return 0;
}
