/* A second of sweeps over 400 MB, by several functions in turn: too short to gain, large enough for copies to cost.
   Prints a norm, and on standard error how many page faults it took. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#define N 256
typedef double grid[N][N][N];
static grid *u, *v, *r;

__attribute__((noinline)) static void residual(void)
{
    for (int i = 1; i < N - 1; i++)
        for (int j = 1; j < N - 1; j++)
            for (int k = 1; k < N - 1; k++)
                (*r)[i][j][k] = (*v)[i][j][k] + 0.25 * (*u)[i][j][k]
                    - 0.125 * ((*u)[i][j][k - 1] + (*u)[i][j][k + 1] + (*u)[i - 1][j][k] + (*u)[i + 1][j][k]);
}

__attribute__((noinline)) static void smooth(void)
{
    for (int i = 1; i < N - 1; i++)
        for (int j = 1; j < N - 1; j++)
            for (int k = 1; k < N - 1; k++)
                (*u)[i][j][k] += 0.5 * (*r)[i][j][k] + 0.1 * ((*r)[i][j][k - 1] + (*r)[i][j][k + 1]);
}

int main(int count, char **arguments)
{
    int sweeps = count > 1 ? atoi(arguments[1]) : 16;
    u = calloc(1, sizeof(grid)), v = malloc(sizeof(grid)), r = calloc(1, sizeof(grid));
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            for (int k = 0; k < N; k++)
                (*v)[i][j][k] = (i * 7 + j * 3 + k) % 11 - 5;
    for (int s = 0; s < sweeps; s++)
        residual(), smooth();
    double norm = 0;
    for (int i = 1; i < N - 1; i++)
        for (int j = 1; j < N - 1; j++)
            for (int k = 1; k < N - 1; k++)
                norm += (*r)[i][j][k] * (*r)[i][j][k];
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    fprintf(stderr, "faults %ld\n", used.ru_minflt);
    printf("%a\n", norm);
    return 0;
}
