/* Matrix products until SIGUSR1 comes, in a program with many mappings, as a Java machine, a data base or an allocator
   with guard pages has. usage: program NUMBER. Prints how many mappings were made, and a sum. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define N 300
double a[N][N], b[N][N], c[N][N];
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

int main(int count, char **arguments)
{
    long number = count > 1 ? atol(arguments[1]) : 0, made = 0;
    signal(SIGUSR1, on_word);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            a[i][j] = (i + j) % 7, b[i][j] = (i * j) % 9;
    for (long i = 0; i < number; i++)
        made += mmap(0, 4096, i & 1 ? PROT_READ : PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED;
    alarm(280);
    fprintf(stderr, "ready %d\n", (int)getpid());
    for (int round = 0; round < 2 || !told; round++)
        product(N);
    double sum = 0;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            sum += c[i][j] * (j % 5);
    printf("%ld %a\n", made, sum);
    return 3;
}
