/* A program that makes 200 threads in its life, one after the other. */
#include <pthread.h>
#include <stdio.h>
static long sum;
static void *one(void *p) { sum += 1; return p; }
int main(void) {
    for (int k = 0; k < 200; k++) {
        pthread_t t;
        if (pthread_create(&t, 0, one, 0)) return 1;
        pthread_join(t, 0);
    }
    printf("%ld\n", sum);
    return 0;
}
