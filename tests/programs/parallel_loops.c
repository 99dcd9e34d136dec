/* Kernels whose loops are parallel, or not, as the comments say. The sizes are not known to the compiler. */
#include <stdio.h>
#include <stdlib.h>
#define LOOP __attribute__((noinline)) static

struct node { long value; struct node *next; };
enum { N = 24, M = 512, R = 64 };
static double u[N][N][N], v[N][N][N], r[N][N][N];
static double a[M], b[M], c[M], cell[4], grid[R][R], rows[R][M];
static long h[16];
static struct node nodes[M];
static volatile int size_n = N, size_m = M, size_r = R, size_of_time = 3;

/* Nine live pointers: three planes of three rows each. i, j, k: parallel. */
LOOP void residual(double (*restrict out)[N][N], double (*restrict in)[N][N], double (*restrict right)[N][N],
                   const double *w)
{
    const int last = size_n - 1;
    for (int i = 1; i < last; i++)
        for (int j = 1; j < last; j++)
            for (int k = 1; k < last; k++) {
                double near = in[i][j][k - 1] + in[i][j][k + 1] + in[i][j - 1][k] + in[i][j + 1][k]
                    + in[i - 1][j][k] + in[i + 1][j][k];
                double far = in[i - 1][j - 1][k] + in[i - 1][j + 1][k] + in[i + 1][j - 1][k] + in[i + 1][j + 1][k];
                out[i][j][k] = right[i][j][k] - w[0] * in[i][j][k] - w[1] * near - w[2] * far;
            }
}

/* More counters and pointers than registers. i, j, k: parallel. */
LOOP void spilled(int n, int m, int l, double *p, double *o, double *s, long sp, long so, long ss, long tp, long to,
                  long ts, double f, double g)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++)
            for (int k = 0; k < l; k++)
                o[i * so + j * to + k] = f * p[i * sp + j * tp + k] + g * s[i * ss + j * ts + k] + i * j
                    + p[i * sp + j * tp + k + 1] * s[i * ss + j * ts + k + 1]
                    + s[(i + 1) * ss + (j + 1) * ts + k] * p[(i + 1) * sp + j * tp + k];
}

/* Each iteration of i writes the row before it reads it. i: copies; j, k: parallel. */
LOOP void scratch(double *row)
{
    const int m = size_m, r = size_r;
    for (int i = 0; i < r; i++) {
        for (int j = 0; j < m; j++)
            row[j] = rows[i][j] * 2;
        for (int k = 1; k < m; k++)
            rows[i][k] = row[k] - row[k - 1];
    }
}

/* i: a sum. */
LOOP double in_register(void)
{
    const int m = size_m;
    double s = 0;
    for (int i = 0; i < m; i++)
        s += a[i] * b[i];
    return s;
}

/* i: a sum in memory. */
LOOP void in_memory(double *s, double *x)
{
    const int m = size_m;
    for (int i = 0; i < m; i++)
        s[0] += x[i];
}

/* i: a sum in memory, which the inner loop may keep in a register; j: a sum. */
LOOP void at_each_level(double *s)
{
    const int m = size_m, r = size_r;
    for (int i = 0; i < r; i++)
        for (int j = 0; j < m; j++)
            s[1] += rows[i][j];
}

/* t: sums in memory, one for each i; i: parallel; j: a sum in a register. */
LOOP void of_rows(double *restrict s)
{
    const int r = size_r, times = size_of_time;
    for (int t = 0; t < times; t++)
        for (int i = 0; i < r; i++) {
            double x = s[i];
            for (int j = 0; j < r; j++)
                x += grid[i][j] * cell[t & 3];
            s[i] = x;
        }
}

/* i: a maximum. */
LOOP long greatest(const long *x)
{
    const int m = size_m;
    long most = x[0];
    for (int i = 1; i < m; i++)
        most = x[i] > most ? x[i] : most;
    return most;
}

/* i: serial, each partial sum is used. */
LOOP void prefix(void)
{
    const int m = size_m;
    double s = 0;
    for (int i = 0; i < m; i++)
        c[i] = s += a[i];
}

/* i: serial, each partial sum is used. */
LOOP void prefix_in_memory(double *s, double *x, double *y)
{
    const int m = size_m;
    for (int i = 0; i < m; i++) {
        s[2] += x[i];
        y[i] = s[2];
    }
}

/* i: serial. */
LOOP void recurrence(void)
{
    const int m = size_m;
    for (int i = 1; i < m; i++)
        b[i] = 0.5 * b[i - 1] + a[i];
}

/* i: serial, in a register. */
LOOP double horner(double x)
{
    const int m = size_m;
    double y = 0;
    for (int i = 0; i < m; i++)
        y = y * x + a[i];
    return y;
}

/* i, j: serial. */
LOOP void wavefront(void)
{
    const int r = size_r;
    for (int i = 1; i < r; i++)
        for (int j = 1; j < r; j++)
            grid[i][j] = 0.25 * (grid[i - 1][j] + grid[i][j - 1]) + 1;
}

/* serial, in a register. */
LOOP long chase(const struct node *p)
{
    long s = 0;
    for (; p; p = p->next)
        s += p->value;
    return s;
}

/* i: sums in memory. */
LOOP void histogram(const long *x)
{
    const int m = size_m;
    for (int i = 0; i < m; i++)
        h[x[i] & 15] += x[i];
}

/* i: serial: the place of each element depends on how many came before. */
LOOP int compact(double *x)
{
    const int m = size_m;
    int n = 0;
    for (int i = 0; i < m; i++)
        if (a[i] > 0.5)
            x[n++] = a[i];
    return n;
}

/* i, j: parallel: one pointer runs through both loops. */
LOOP void through(double *p, int n, int m)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++)
            *p++ = i + j;
}

/* i: serial: how many iterations there are depends on the data. */
LOOP int search(const long *x)
{
    int i = 0;
    while (x[i] != 511)
        i++;
    return i;
}

/* i: parallel: b is read only, also where the compiler keeps b[i + 1] in a register for the next iteration. */
LOOP void smooth(double *restrict x, const double *restrict y)
{
    const int m = size_m;
    for (int i = 1; i < m - 1; i++)
        x[i] = y[i - 1] * 0.25 + y[i] * 0.5 + y[i + 1] * 0.25;
}

/* i: serial: x[i - 1] comes from the iteration before, also where the compiler keeps it in a register. */
LOOP void forwarded(double *restrict x, double *restrict z, const double *restrict y)
{
    const int m = size_m;
    for (int i = 1; i < m; i++) {
        x[i] = y[i] * 2;
        z[i] = x[i - 1] + 1;
    }
}

/* i: serial: where the greatest element is. */
LOOP int where(const long *x)
{
    const int m = size_m;
    long most = x[0];
    int place = 0;
    for (int i = 1; i < m; i++)
        if (x[i] > most) {
            most = x[i];
            place = i;
        }
    return place;
}

/* i: parallel, calls a function that is parallel, too. */
LOOP void row_of(double *x, int n, double f)
{
    for (int j = 0; j < n; j++)
        x[j] = f * j;
}
LOOP void calls(double f)
{
    const int m = size_m, r = size_r;
    for (int i = 0; i < r; i++)
        row_of(rows[i], m, f * i);
}

/* i: serial: each call gets what the last one has returned. */
LOOP double step(double x) { return x * 0.5 + 1; }
LOOP double iterated(double x)
{
    const int m = size_m;
    for (int i = 0; i < m; i++)
        x = step(x);
    return x;
}

/* i: a sum of what a function returns. */
LOOP double summed(void)
{
    const int m = size_m;
    double s = 0;
    for (int i = 0; i < m; i++)
        s += step(a[i]);
    return s;
}

/* i: serial: the value of the iteration before is read. */
LOOP void shifted(double *restrict x, const double *restrict y)
{
    const int m = size_m;
    double last = 0;
    for (int i = 0; i < m; i++) {
        x[i] = last;
        last = y[i];
    }
}

int main(void)
{
    static long keys[M];
    static double w[3] = { 0.5, 0.25, 0.125 }, p[40 * 1024], o[40 * 1024], s[40 * 1024];
    for (int i = 0; i < M; i++) {
        a[i] = i % 7 * 0.2;
        b[i] = i % 5;
        keys[i] = i * 7919 % 1013;
        nodes[i].value = i;
        nodes[i].next = i + 1 < M ? &nodes[i + 1] : 0;
    }
    residual(r, u, v, w);
    spilled(6, 7, 40, p, o, s, 100, 110, 120, 10, 11, 12, 0.5, 0.25);
    scratch(malloc(M * sizeof(double)));
    double t = in_register();
    in_memory(cell, a);
    at_each_level(cell);
    of_rows(c);
    long most = greatest(keys);
    prefix();
    prefix_in_memory(cell, a, b);
    recurrence();
    t += horner(0.5);
    wavefront();
    most += chase(nodes);
    histogram(keys);
    int n = compact(c);
    through(p, 11, 67);
    shifted(c, a);
    keys[400] = 511;
    n += search(keys);
    smooth(c, a);
    forwarded(b, c, a);
    n += where(keys);
    calls(0.5);
    t += iterated(3) + summed();
    printf("%g %ld %d %g %ld %g %g %g\n", t, most, n, grid[R - 1][R - 1], h[3], p[50], o[400], r[3][3][3] + cell[0] + c[7]);
    return 0;
}
