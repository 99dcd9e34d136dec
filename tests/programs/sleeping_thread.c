/* Matrix products while a second thread sleeps in poll; then both threads make products of their own at the same time.
 * usage: program [n] */
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include "matrix.h"

static int size, wake[2];

__attribute__((noinline)) void dgemm(int n, REAL *a, REAL *b, REAL *c)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            for (int k = 0; k < n; k++)
                c[i * n + j] += a[i * n + k] * b[k * n + j];
}

static void *products(void *matrices)
{
    REAL **m = matrices;
    for (int i = 0; i < 12; i++)
        dgemm(size, m[0], m[1], m[2]);
    return 0;
}

static void *sleeper(void *matrices)
{
    struct pollfd entry = {.fd = wake[0], .events = POLLIN};
    if (poll(&entry, 1, -1) != 1)
        puts("poll was disturbed");
    return products(matrices);
}

int main(int argc, char **argv)
{
    size = parse_size(argc > 1 ? argv[1] : "512");
    size_t count = (size_t)size * size;
    REAL *mine[3], *others[3];
    for (int i = 0; i < 3; i++) {
        fill(mine[i] = allocate(count), count, i + 1);
        fill(others[i] = allocate(count), count, i + 11);
    }
    pthread_t thread;
    if (pipe(wake) || pthread_create(&thread, 0, sleeper, others))
        return 1;
    dgemm(size, mine[0], mine[1], mine[2]);
    products(mine);
    if (write(wake[1], "x", 1) != 1)
        return 1;
    products(mine);
    pthread_join(thread, 0);
    print_matrix(mine[2], size, 0);
    print_matrix(others[2], size, 0);
    return 0;
}
