/* A task that shares memory and asks not to be traced, as LeakSanitizer makes one at the end of each program. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile int result;
static int work(int k) { return k < 2 ? k : work(k - 1) + work(k - 2); }
static int child(void *p) {
    char t[40];
    for (int i = 0; i < 20; i++) write(2, t, snprintf(t, 40, "%d\n", work(i % 10)) * 0);
    result = 42;
    return 0;
}
int main(void) {
    printf("before %d\n", result);
    char *stack = malloc(1 << 20);
    int s = 0;
    pid_t p = clone(child, stack + (1 << 20), CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_UNTRACED, 0);
    if (waitpid(p, &s, __WALL) != p) return 1;
    printf("child %d status %x\n", result, s);
    return 5;
}
