/* A handler that looks where it has interrupted the program: in the program's own code. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <ucontext.h>

extern const char __executable_start[], etext[];
static volatile int ticks, elsewhere;

static void tick(int number, siginfo_t *information, void *context) {
    const char *place = (const char *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    (void)number;
    (void)information;
    ticks++;
    elsewhere += place < __executable_start || place >= etext;
}

int main(void) {
    struct sigaction action = {0};
    struct itimerval every = {{0, 2000}, {0, 2000}};
    volatile long rounds = 0;

    action.sa_sigaction = tick;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGVTALRM, &action, 0);
    setitimer(ITIMER_VIRTUAL, &every, 0);
    while (ticks < 50)
        rounds++;
    printf("%d\n", elsewhere);
    return 0;
}
