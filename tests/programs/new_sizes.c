/* A nest whose sizes no register tells, inlined into a loop that calls a function: program which rounds.
   which: new: another size at each of 600 entries; few: five sizes in turn; slow: one size for many entries, then the
   next. The last line of the output is a sum of all bits of the array. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N = 600, M = 500 };

static __attribute__((noinline)) void tick(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec == 0)
        puts("the clock began anew");
}

int main(int argc, char **argv)
{
    const char *which = argc > 1 ? argv[1] : "new";
    int rounds = argc > 2 ? atoi(argv[2]) : 10;
    double (*a)[M] = malloc(sizeof(double[N][M])), (*c)[N] = malloc(sizeof(double[N][N]));
    double **ends = malloc(sizeof(double *[N])); /* of the rows of c */
    for (int i = 0; i < N; i++) {
        int size = !strcmp(which, "new") ? i + 1 : !strcmp(which, "few") ? 100 + 70 * (i % 5) : 100 + i / 150;
        ends[i] = c[i] + size;
        for (int k = 0; k < M; k++)
            a[i][k] = (double)((i * k + 1) % 13) / 13;
        for (int j = 0; j < N; j++)
            c[i][j] = (double)((i + j) % 7) / 7;
    }
    for (int r = 0; r < rounds; r++)
        for (int i = 0; i < N; i++) {
            tick();
            double *end = ends[i];
            for (int k = 0; k < M; k++) {
                double factor = a[i][k];
                double (*other)[M] = a;
                for (double *p = c[i]; p != end; p++, other++)
                    *p += factor * (*other)[k];
            }
        }
    unsigned long sum = 0;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            unsigned long bits;
            memcpy(&bits, &c[i][j], sizeof bits);
            sum = sum * 31 + (bits ^ bits >> 32);
        }
    printf("%016lx\n", sum);
    return 0;
}
