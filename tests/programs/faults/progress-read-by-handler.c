/* A handler looks at how far the computation is: a volatile counter, nothing else. */
#include "witness.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#define N 900
/* A handler looks at how far the computation is: a volatile counter, nothing else */
double a[N][N], b[N][N], c[N][N];
static volatile sig_atomic_t row, last = -1, seen;
static void tick(int s) { if (row != last) last = row, seen++; }
__attribute__((noinline)) void work(int n) {
    for (int i = 0; i < n; i++) {
        row = i;
        for (int j = 0; j < n; j++) {
            double s = 0;
            for (int k = 0; k < n; k++) s += a[i][k] * b[k][j];
            c[i][j] = s;
        }
    }
}
int main(int argc, char **argv) {
    for (int i = 0; i < N * N; i++) a[0][i] = i % 7, b[0][i] = i % 9;
    witness(work);
    for (int r = 0; r < 3 || awaited(); r++) work(N);
    acts();
    signal(SIGALRM, tick);
    struct itimerval t = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &t, 0);
    work(N);
    memset(&t, 0, sizeof t); setitimer(ITIMER_REAL, &t, 0);
    printf("%s\n", seen > 8 ? "rows go by" : "it stands still");
    fprintf(stderr, "%d\n", seen);
    return 0;
}
