/* One counter tells which row is begun, another which is finished. A handler sees that they are never further apart than
   one row, and that both go on. */
#include "witness.h"
#include <signal.h>
#include <sys/time.h>
#define N 900
static double a[N][N], b[N][N];
double c[N][N];
static volatile sig_atomic_t begun, finished;
static volatile long wrong, last = -1, seen;
static void look(int s) {
    int before = finished, row = begun;
    wrong += row < before || row > before + 1;
    if (before != last) last = before, seen++;
}
__attribute__((noinline)) void work(int n) {
    for (int i = 0; i < n; i++) {
        begun = i + 1;
        for (int j = 0; j < n; j++) {
            double s = 0;
            for (int k = 0; k < n; k++) s += a[i][k] * b[k][j];
            c[i][j] = s;
        }
        finished = i + 1;
    }
    begun = finished = 0;
}
int main(void) {
    for (int i = 0; i < N * N; i++) a[0][i] = i % 7, b[0][i] = i % 9;
    witness(work);
    for (int r = 0; r < 3 || awaited(); r++) work(N);
    signal(SIGALRM, look);
    acts();
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 1000}, {0, 1000}}, 0);
    work(N);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, 0);
    printf("%ld wrong, %s\n", wrong, seen > 8 ? "rows go by" : "it stands still");
    fprintf(stderr, "%ld rows seen\n", seen);
    return 0;
}
