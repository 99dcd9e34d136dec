/* Three timers whose handlers interrupt a sort, its comparisons and each other. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

static volatile long ticks;

static void tick(int number) {
    char text[64];
    ticks++;
    snprintf(text, sizeof text, "%d %ld", number, ticks);
}

static int compare(const void *first, const void *second) {
    int a = *(const int *)first, b = *(const int *)second;
    return (a > b) - (a < b);
}

int main(void) {
    static int values[20000];
    struct sigaction action = {0};
    struct itimerval every = {{0, 20000}, {0, 20000}};
    unsigned state = 1;
    long sum = 0;

    action.sa_handler = tick;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, 0);
    sigaction(SIGPROF, &action, 0);
    sigaction(SIGVTALRM, &action, 0);
    setitimer(ITIMER_REAL, &every, 0);
    setitimer(ITIMER_PROF, &every, 0);
    setitimer(ITIMER_VIRTUAL, &every, 0);
    for (int round = 0; round < 300; round++) {
        for (int i = 0; i < 20000; i++) {
            state = state * 1103515245 + 12345;
            values[i] = (int)(state >> 8);
        }
        qsort(values, 20000, sizeof *values, compare);
        for (int i = 0; i < 20000; i++)
            sum += (long)values[i] * (i % 7);
    }
    printf("%ld %d\n", sum, ticks > 10);
    return 0;
}
