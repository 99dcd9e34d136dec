/* Each round takes a lock, a port and a pipe, and gives them back: nobody else may hold them. */
#include "witness.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>
#define N 96
/* each round locks a file, opens a port and a pipe, computes, and closes them again */
double a[N][N], b[N][N], c[N][N];
__attribute__((noinline)) void product(int n) {
    for (int i = 0; i < n; i++) for (int j = 0; j < n; j++) { double s = 0; for (int k = 0; k < n; k++) s += a[i][k] * b[k][j]; c[i][j] = s; }
    __asm__ volatile("" ::: "memory");
}
int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 4000, busy = 0, noport = 0, noend = 0;
    char name[] = "lockXXXXXX"; close(mkstemp(name));
    for (int i = 0; i < N * N; i++) a[0][i] = i % 7, b[0][i] = i % 9;
    int port = 20000 + getpid() % 20000;
    witness(product);
    for (int r = 0; r < rounds || awaited(); r++) {
        int fd = open(name, O_RDWR | O_CLOEXEC), p[2], s = socket(AF_INET, SOCK_STREAM, 0), one = 1;
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        busy += flock(fd, LOCK_EX | LOCK_NB) != 0;
        noport += bind(s, (void *)&at, sizeof at) != 0 || listen(s, 1) != 0;
        if (pipe(p)) return 1;
        product(N);
        close(p[1]);
        struct pollfd e = {p[0], POLLIN, 0};
        char x; noend += poll(&e, 1, 0) != 1 || read(p[0], &x, 1) != 0;
        close(p[0]); close(fd); close(s);
    }
    acts();
    unlink(name);
    printf("%d times locked by somebody else, %d times no port, %d times no end of the pipe\n", busy, noport, noend);
    return 0;
}
