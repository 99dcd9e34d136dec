/* Matrix products on the same data, over and over, until SIGUSR1 comes: a program that never ends before a test is done
   with it. Prints the last product and how many differed from the first. usage: program [n] */
#include <signal.h>
#include <unistd.h>

#include "matrix.h"

#define LONGEST_SECONDS 100

static volatile sig_atomic_t told;

static void on_word(int number)
{
    (void)number;
    told = 1;
}

void dgemm(int n, REAL *a, REAL *b, REAL *c)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            for (int k = 0; k < n; k++)
                c[i * n + j] += a[i * n + k] * b[k * n + j];
}

int main(int argc, char **argv)
{
    int n = parse_size(argc > 1 ? argv[1] : "512");
    size_t count = (size_t)n * n;
    REAL *a = allocate(count), *b = allocate(count), *c = allocate(count);
    fill(a, count, 1);
    fill(b, count, 2);
    signal(SIGUSR1, on_word);
    alarm(LONGEST_SECONDS);
    fprintf(stderr, "ready %d\n", (int)getpid());
    uint64_t first = 0, different = 0;
    for (int call = 0; call < 2 || !told; call++) {
        fill(c, count, 3);
        dgemm(n, a, b, c);
        uint64_t result = hash(HASH_START, c, count);
        if (!call)
            first = result;
        different += result != first;
    }
    print_matrix(c, n, 0);
    printf("different %llu\n", (unsigned long long)different);
    return 3;
}
