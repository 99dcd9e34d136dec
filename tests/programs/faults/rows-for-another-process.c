/* Rows and the number of those that are done lie in memory shared with another process, which takes them. The nest is
   replaced while it works on memory of its own. */
#include "witness.h"
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#define N 400
struct rows { double c[N][N]; atomic_int ready, over; };
static double a[N][N], b[N][N], want[N][N];
static struct rows mine;
__attribute__((noinline)) void work(struct rows *r, int n) {
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) {
            double s = 0;
            for (int k = 0; k < n; k++) s += a[i][k] * b[k][j];
            r->c[i][j] = s;
        }
        atomic_store_explicit(&r->ready, i + 1, memory_order_release);
    }
}
static int taken_wrong(struct rows *r) {
    int wrong = 0;
    for (int taken = 0; taken < N && !atomic_load(&r->over);)
        for (int n = atomic_load_explicit(&r->ready, memory_order_acquire); taken < n; taken++)
            wrong += memcmp(r->c[taken], want[taken], sizeof want[0]) != 0;
    return wrong > 100 ? 100 : wrong;
}
int main(void) {
    int status, wrong = 0;
    for (int i = 0; i < N * N; i++) a[0][i] = i % 1013, b[0][i] = i % 997;
    work(&mine, N);
    memcpy(want, mine.c, sizeof want);
    witness(work);
    for (int r = 0; r < 3 || awaited(); r++) work(&mine, N);
    acts();
    for (int r = 0; r < 6; r++) {
        struct rows *shared = mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        pid_t child = fork();
        if (!child) _exit(taken_wrong(shared));
        work(shared, N);
        usleep(10000);
        shared->over = 1;
        waitpid(child, &status, 0);
        wrong += WEXITSTATUS(status);
        munmap(shared, sizeof *shared);
    }
    printf("%d rows taken that were not complete\n", wrong);
    return 0;
}
