/* Handlers that return, that jump out, that meet a fault, and a jump back over calls that have not returned. */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>

static volatile int ticks;
static sigjmp_buf out;
static jmp_buf back;

static void count(int number) {
    (void)number;
    ticks++;
}

static void leave(int number) {
    (void)number;
    siglongjmp(out, 5);
}

__attribute__((noinline)) static void deeper(int depth) {
    if (depth == 0)
        longjmp(back, 1);
    deeper(depth - 1);
    ticks++; /* never */
}

int main(void) {
    struct sigaction action = {0};
    struct itimerval every = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    volatile long sum = 0;
    volatile int jumps = 0;
    int faults = 0;

    action.sa_handler = count;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, 0);
    setitimer(ITIMER_REAL, &every, 0);
    while (ticks < 50)
        for (int i = 0; i < 1000; i++)
            sum += i;
    setitimer(ITIMER_REAL, &never, 0);

    action.sa_handler = leave;
    action.sa_flags = 0;
    sigaction(SIGSEGV, &action, 0);
    for (int i = 0; i < 10; i++) {
        if (sigsetjmp(out, 1) == 0)
            *(volatile int *)8 = 1;
        else
            faults++;
    }
    if (setjmp(back) != 0)
        jumps++;
    if (jumps < 3)
        deeper(4 * jumps);
    signal(SIGUSR1, count);
    ticks = 0;
    raise(SIGUSR1);
    printf("%d %d %d\n", ticks, faults, jumps);
    return 0;
}
