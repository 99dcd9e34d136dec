/* Small nests whose snapshots are kept (tests/snapshots): ways in which memopt was wrong once, or nearly. The numbers
 * have few digits, so that snapshots are small, and their sums round. usage: program CASE REPETITIONS */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N 40
#define KERNEL __attribute__((noipa)) void

static double a[N][N], b[N][N], c[N][N];
static float f[N][N];
static int s[N][N], w[N][N];

/* Sums in their order: i, j, k. */
KERNEL product(void)
{
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            for (int k = 0; k < N; k++)
                c[i][j] += a[i][k] * b[k][j];
}

/* Two buffers in turn, a time loop outside. */
KERNEL stencil(int steps)
{
    for (int t = 0; t < steps; t++) {
        for (int i = 1; i < N - 1; i++)
            for (int j = 1; j < N - 1; j++)
                b[i][j] = 0.2 * (a[i][j] + a[i][j - 1] + a[i][j + 1] + a[i - 1][j] + a[i + 1][j]);
        for (int i = 1; i < N - 1; i++)
            for (int j = 1; j < N - 1; j++)
                a[i][j] = 0.2 * (b[i][j] + b[i][j - 1] + b[i][j + 1] + b[i - 1][j] + b[i + 1][j]);
    }
}

/* Inner bounds that follow the outer counter; what lies above the diagonal stays. */
KERNEL triangle(void)
{
    for (int i = 0; i < N; i++)
        for (int j = 0; j <= i; j++)
            for (int k = 0; k < N; k++)
                c[i][j] += a[i][k] * a[j][k];
}

/* A branch on data passes over a store; there are NaNs among the data, and the flags they raise count. */
KERNEL branch(void)
{
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++)
            for (int j = 0; j < N; j++)
                if (a[i][k] > b[k][j])
                    c[i][j] += b[k][j];
}

/* Denormal numbers converted to integers raise "inexact", not "denormal operand". */
KERNEL convert(void)
{
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++)
            for (int j = 0; j < N; j++)
                s[i][j] += w[i][k] * (int)f[k][j];
}

/* Products of NaNs with payloads: the first operand's survives. */
KERNEL payloads(void)
{
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            for (int k = 0; k < N; k++)
                c[i][j] += b[k][j] * a[i][k];
}

static double number(unsigned long bits)
{
    double found;
    memcpy(&found, &bits, sizeof found);
    return found;
}

static void fill(const char *name)
{
    memset(c, 0, sizeof c);
    memset(s, 0, sizeof s);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            a[i][j] = (i + 3 * j) % 7 / 3.0, b[i][j] = (2 * i + j) % 5 / 7.0;
            f[i][j] = (i + j) % 4 ? i + 0.5f : 1e-40f, w[i][j] = (i + 2 * j) % 9;
        }
    for (int i = 0; i < N; i++)
        if (!strcmp(name, "branch"))
            b[i][i] = NAN;
        else if (!strcmp(name, "payloads")) {
            a[i][i * 7 % N] = number(0x7ff8000000000000ul + i);
            b[i * 3 % N][i] = number(0xfff8000000000100ul + i);
        }
}

int main(int argc, char **argv)
{
    const char *name = argc > 2 ? argv[1] : "";
    for (long r = 0; argc > 2 && r < atol(argv[2]); r++) {
        if (r % 8 == 0 || !strcmp(name, "stencil"))  // whose numbers get more digits with each step
            fill(name);
        if (!strcmp(name, "product"))
            product();
        else if (!strcmp(name, "stencil"))
            stencil(12);
        else if (!strcmp(name, "triangle"))
            triangle();
        else if (!strcmp(name, "branch"))
            branch();
        else if (!strcmp(name, "convert"))
            convert();
        else if (!strcmp(name, "payloads"))
            payloads();
    }
    printf("%a %a %d\n", c[N - 1][1], a[N / 2][N / 2], s[N - 1][N - 1]);
}
