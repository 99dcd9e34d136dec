/* A program confines itself some milliseconds after it began, while memopt may be at work on its nest. Usage: MS [filter]. */
#include "witness.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
__attribute__((noinline)) static void mm(const double *a, const double *b, double *c, long n) {
    for (long i = 0; i < n; i++)
        for (long j = 0; j < n; j++) {
            double s = 0;
            for (long k = 0; k < n; k++) s += a[i * n + k] * b[k * n + j];
            c[i * n + j] = s;
        }
}
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e3 + t.tv_nsec * 1e-6; }
int main(int c, char **v) {
    long n = 400;
    double *a = calloc(n * n, 8), *b = calloc(n * n, 8), *d = calloc(n * n, 8), t0 = now();
    for (long i = 0; i < n * n; i++) a[i] = i % 7, b[i] = i % 5;
    int in = 0, late = atof(v[1]) < 0; /* late: once new code is in place */
    witness(mm);
    for (int i = 0; late && (i < 3 || awaited()); i++) mm(a, b, d, n);
    for (int i = 0; i < 60; i++) {
        if (!in && (late || now() - t0 >= atof(v[1]))) {
            in = 1;
            acts();
            if (c < 3)
                prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0);
            else {
                struct sock_filter f[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 2, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 1, 0),
                    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
                struct sock_fprog p = {5, f};
                prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
                prctl(PR_SET_SECCOMP, 2, &p);
            }
        }
        mm(a, b, d, n);
        a[i] += d[i] > 0;
    }
    char o[40];
    write(1, o, snprintf(o, 40, "done %.0f\n", d[n * n / 2]));
    syscall(SYS_exit, 4);
}
