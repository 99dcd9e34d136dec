/* Four threads, each with a known number of iterations of one function. */
#include <pthread.h>
#include <stdio.h>

__attribute__((noinline)) static long work(long n) {
    long sum = 0;
    for (long i = 0; i < n; i++)
        sum += i % 7;
    return sum;
}

static void *run(void *argument) {
    return (void *)work((long)argument);
}

int main(void) {
    pthread_t threads[4];
    long sum = 0;
    for (long i = 0; i < 4; i++)
        pthread_create(&threads[i], 0, run, (void *)(100003 * (i + 1)));
    for (int i = 0; i < 4; i++) {
        void *result;
        pthread_join(threads[i], &result);
        sum += (long)result;
    }
    printf("%ld\n", sum);
    return 0;
}
