/* Matrix products until SIGUSR1 comes, then the largest reservation of addresses that is possible, against the one
   before the first product. Prints the GiB that it has lost, and how much is mapped at once behind it. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define N 160
double a[N][N], b[N][N], c[N][N], d[N][N];
static volatile sig_atomic_t told;

static void on_word(int number)
{
    (void)number;
    told = 1;
}

__attribute__((noinline)) static void product(int n)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int k = 0; k < n; k++)
                sum += a[i][k] * b[k][j];
            c[i][j] = sum;
        }
    __asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) static void other(int n)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int k = 0; k < n; k++)
                sum += a[k][i] * b[j][k];
            d[i][j] = sum;
        }
    __asm__ volatile("" ::: "memory");
}

static long largest_gib(void)
{
    long low = 1, high = 1 << 17;
    while (low < high) {
        long middle = (low + high + 1) / 2;
        void *place = mmap(0, (size_t)middle << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (place == MAP_FAILED)
            high = middle - 1;
        else
            munmap(place, (size_t)middle << 30), low = middle;
    }
    return low;
}

int main(void)
{
    long before = largest_gib();
    signal(SIGUSR1, on_word);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            a[i][j] = (i + j) % 7, b[i][j] = (i * j) % 9;
    alarm(280);
    fprintf(stderr, "ready %d\n", (int)getpid());
    for (int round = 0; round < 2 || !told; round++)
        product(N), other(N);
    long after = largest_gib();
    printf("%ld of %ld GiB lost\n", before - after, before);
    return 3;
}
