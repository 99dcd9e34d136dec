/* A time limit: the handler leaves the nest by siglongjmp. Rows up to the counter are complete then. */
#include "witness.h"
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#define N 700
/* A time limit: the handler leaves the computation by longjmp. Rows up to the counter are complete then. */
static double a[N][N], b[N][N]; static volatile double c[N][N];
static volatile sig_atomic_t done;
static sigjmp_buf out;
static void late(int s) { siglongjmp(out, 1); }
__attribute__((noinline)) void work(int n) {
    for (int i = 0; i < n; i++) {
        done = i;
        for (int j = 0; j < n; j++) {
            double s = 0;
            for (int k = 0; k < n; k++) s += a[i][k] * b[k][j];
            c[i][j] = s + 1;
        }
    }
}
int main(int argc, char **argv) {
    int wrong = 0, unfinished = 0, rounds = argc > 1 ? atoi(argv[1]) : 20;
    for (int i = 0; i < N * N; i++) a[0][i] = i % 1013, b[0][i] = i % 997;
    witness(work);
    for (int r = 0; r < 3 || awaited(); r++) work(N);
    acts();
    signal(SIGALRM, late);
    for (volatile int r = 0; r < rounds; r++) {
        memset((void *)c, 0, sizeof c); done = 0;
        struct itimerval t = {{0, 0}, {0, 5000 + (r * 37 + (argc > 2 ? atoi(argv[2]) : 0)) % 19000}};
        if (!sigsetjmp(out, 1)) { setitimer(ITIMER_REAL, &t, 0); work(N); }
        memset(&t, 0, sizeof t); setitimer(ITIMER_REAL, &t, 0);
        unfinished += done < N;
        for (int i = 0; i < done; i++)
            for (int j = 0; j < N; j++) wrong += c[i][j] == 0;
    }
    printf("%d numbers missing in rows that are done\n", wrong);
    fprintf(stderr, "%d of %d left in the middle\n", unfinished, rounds);
    return 0;
}
