/* A program that sleeps for nine tenths of the time, until it is killed. Prints the addresses between which it works. */
#include <stdio.h>
#include <time.h>

__attribute__((noinline, noipa, section("text_of_work"))) static void work(volatile double *sum)
{
    for (long i = 0; i < 1000 * 1000; i++)
        *sum += i;
}

extern char __start_text_of_work[], __stop_text_of_work[];

int main(void)
{
    volatile double sum = 0;
    const struct timespec rest = {0, 20 * 1000 * 1000};
    printf("%ld %ld\n", (long)__start_text_of_work, (long)__stop_text_of_work);
    fflush(stdout);
    for (;;) {
        work(&sum);
        nanosleep(&rest, 0);
    }
}
