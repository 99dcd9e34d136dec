/* The number of rows that are done is stored behind each row. A handler takes the rows below it: they are complete. */
#include "witness.h"
#include <signal.h>
#include <sys/time.h>
#define N 600
static double a[N][N], b[N][N], want[N][N];
static volatile double c[N][N];
static volatile sig_atomic_t done;
static volatile long wrong, taken;
static void take(int s) {
    for (int n = done, i = n > 40 ? n - 40 : 0; i < n; i++, taken++)
        for (int j = 0; j < N; j += 7) wrong += c[i][j] != want[i][j];
}
__attribute__((noinline)) void work(int n) {
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) {
            double s = 0;
            for (int k = 0; k < n; k++) s += a[i][k] * b[k][j];
            c[i][j] = s;
        }
        done = i + 1;
    }
}
int main(void) {
    for (int i = 0; i < N * N; i++) a[0][i] = i % 1013, b[0][i] = i % 997;
    work(N);
    memcpy(want, (void *)c, sizeof want);
    signal(SIGALRM, take);
    witness(work);
    for (int r = 0; r < 3 || awaited(); r++) work(N);
    acts();
    for (int r = 0; r < 6; r++) {
        memset((void *)c, 0, sizeof c);
        done = 0;
        setitimer(ITIMER_REAL, &(struct itimerval){{0, 700}, {0, 700}}, 0);
        work(N);
        setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, 0);
    }
    printf("%ld numbers wrong in rows that are done\n", wrong);
    fprintf(stderr, "%ld rows taken\n", taken);
    return 0;
}
