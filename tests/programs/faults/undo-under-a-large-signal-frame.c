/* A version is taken out while a handler with a large frame runs on top of it.
   Usage: PAUSE STAY GO, names of files. When PAUSE comes, the handler goes on while STAY is there; the rounds go on while
   GO is there. */
#include "witness.h"
#include <signal.h>
#include <sys/time.h>
#define N 300
double a[N][N], b[N][N], c[N][N];
static char *pause_file, *stay, *go;
static int there(const char *file) { return access(file, F_OK) == 0; }
__attribute__((noinline)) void product(int n) {
    for (int i = 0; i < n; i++) for (int j = 0; j < n; j++) { double s = 0; for (int k = 0; k < n; k++) s += a[i][k] * b[k][j]; c[i][j] = s; }
    __asm__ volatile("" ::: "memory");
}
static void handler(int s) {
    volatile char large[200000];
    large[0] = 1;
    if (!there(pause_file)) return;
    unlink(pause_file);
    acts();
    while (there(stay))
        for (volatile int q = 0; q < 100000; q++);
}
int main(int argc, char **argv) {
    pause_file = argv[1], stay = argv[2], go = argv[3];
    for (int i = 0; i < N * N; i++) a[0][i] = i % 7, b[0][i] = i % 9;
    witness(product);
    signal(SIGALRM, handler);
    struct itimerval t = {{0, 3000}, {0, 3000}};
    setitimer(ITIMER_REAL, &t, 0);
    while (there(go)) product(N);
    printf("%a\n", c[5][7]);
    return 0;
}
