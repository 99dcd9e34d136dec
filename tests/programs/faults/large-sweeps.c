/* Two seconds of sweeps over 400 MB: too short to gain, large enough for copies to cost. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#define N 256
typedef double grid[N][N][N];
static grid *u, *v, *r;
__attribute__((noinline)) static void residual(void)
{
    for (int i = 1; i < N - 1; i++)
        for (int j = 1; j < N - 1; j++) {
            double a[N], b[N];
            for (int k = 0; k < N; k++) {
                a[k] = (*u)[i][j - 1][k] + (*u)[i][j + 1][k] + (*u)[i - 1][j][k] + (*u)[i + 1][j][k];
                b[k] = (*u)[i - 1][j - 1][k] + (*u)[i - 1][j + 1][k] + (*u)[i + 1][j - 1][k] + (*u)[i + 1][j + 1][k];
            }
            for (int k = 1; k < N - 1; k++)
                (*r)[i][j][k] = (*v)[i][j][k] + 0.25 * (*u)[i][j][k] - 0.125 * (a[k - 1] + a[k + 1] + b[k]) - 0.0625 * (b[k - 1] + b[k + 1]);
        }
}
__attribute__((noinline)) static void smooth(void)
{
    for (int i = 1; i < N - 1; i++)
        for (int j = 1; j < N - 1; j++)
            for (int k = 1; k < N - 1; k++)
                (*u)[i][j][k] += 0.5 * (*r)[i][j][k] + 0.1 * ((*r)[i][j][k - 1] + (*r)[i][j][k + 1]);
}
__attribute__((noinline)) static double norm(void)
{
    double s = 0;
    for (int i = 1; i < N - 1; i++)
        for (int j = 1; j < N - 1; j++)
            for (int k = 1; k < N - 1; k++) s += (*r)[i][j][k] * (*r)[i][j][k];
    return sqrt(s);
}
int main(int argc, char **argv)
{
    int sweeps = argc > 1 ? atoi(argv[1]) : 24;
    u = calloc(1, sizeof(grid)), v = malloc(sizeof(grid)), r = calloc(1, sizeof(grid));
    for (int i = 0; i < N; i++) for (int j = 0; j < N; j++) for (int k = 0; k < N; k++) (*v)[i][j][k] = (i * 7 + j * 3 + k) % 11 - 5;
    for (int s = 0; s < sweeps; s++) { residual(); smooth(); }
    printf("%a\n", norm());
    return 0;
}
