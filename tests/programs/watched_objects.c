/* The same loop over data of each kind: variables, the stacks of two threads, the heap, mapped memory. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 500 };
double shared_table[N];
static double own_table[2 * N];

#define LOOP(name) \
    __attribute__((noipa)) void name(double *a) { for (int i = 0; i < N; i++) a[i] += i; }
LOOP(on_shared)
LOOP(on_own)
LOOP(on_heap)
LOOP(on_mapped)
LOOP(on_stack)
LOOP(on_stack_of_thread)
LOOP(on_two)

static void *work(void *arg)
{
    double local[N] = {0};
    on_stack_of_thread(local);
    *(double *)arg = local[N / 2];
    return NULL;
}

int main(void)
{
    double local[N] = {0}, *heap = calloc(N, sizeof *heap), *mapped = calloc(N, 4096), result;
    pthread_t thread;
    on_shared(shared_table);
    on_own(own_table + N);
    on_heap(heap);
    on_mapped(mapped + 4096);
    on_stack(local);
    on_two(shared_table);
    on_two(heap);
    pthread_create(&thread, NULL, work, &result);
    pthread_join(thread, NULL);
    printf("%g\n", result + shared_table[1] + own_table[N + 1] + heap[2] + mapped[4097] + local[3]);
    return 0;
}
