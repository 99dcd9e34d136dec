/* Another process sets the flag that the loop reads each time; it lies in shared memory. */
#include "witness.h"
#include <sys/mman.h>
#include <sys/wait.h>
#define N 512
static double a[N][N], b[N][N], c[N][N];
static volatile int *stop;
__attribute__((noinline)) void work(long rounds, volatile int *stop) {
    for (long r = 0; r < rounds && !*stop; r++)
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++) c[j][i] = a[j][i] * 0.5 + c[j][i] * 0.25 + b[j][i];
}
int main(void) {
    for (int i = 0; i < N * N; i++) a[0][i] = i % 1013, b[0][i] = i % 997;
    stop = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int mine = 0; /* at first the flag lies in memory of its own */
    witness(work);
    for (int r = 0; r < 3 || awaited(); r++) work(40, &mine);
    acts();
    pid_t child = fork();
    if (!child) {
        usleep(300000);
        *stop = 1;
        _exit(0);
    }
    work(1L << 40, stop);
    waitpid(child, 0, 0);
    puts("done");
    return 0;
}
