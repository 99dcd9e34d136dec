/* Symmetric successive over-relaxation for three coupled fields on a grid: what a profile of a whole solver is held
   against, because it has everything in known numbers.

   program [iterations [n]]: grids of n x (n + 1) x (n + 2) points. One iteration: for each plane upwards the lower
   Jacobian and a block-triangular sweep, for each plane downwards the upper ones, then the right-hand side and, every
   fourth time, the norm of the residual. At the start each inner point is blended from the exact solution at the six
   faces of the grid. */
#include <math.h>

#include "suite.h"

enum { FIELDS = 3 };

static int nx, ny, nz;
static double *u, *f, *r;          /* [nz][ny][nx][FIELDS] */
static double *d, *a, *b, *c;      /* one plane: [ny][nx][FIELDS][FIELDS] */
static const double omega = 1.2, interval = 0.4;

#define AT(k, j, i) ((((size_t)(k) * ny + (j)) * nx + (i)) * FIELDS)
#define BLOCK(j, i) (((size_t)(j) * nx + (i)) * FIELDS * FIELDS)

KERNEL static void exact_solution(int i, int j, int k, double *value)
{
    double x = i / (nx - 1.0), y = j / (ny - 1.0), z = k / (nz - 1.0);
    for (int m = 0; m < FIELDS; m++)
        value[m] = 1.0 + x * (0.5 + 0.25 * m * x) + y * (0.75 - 0.5 * y * x) + z * (1.0 + 0.125 * m * z * y);
}

KERNEL static void initialise(void)
{
    double low[3][FIELDS], high[3][FIELDS];
    for (int k = 0; k < nz; k++)
        for (int j = 0; j < ny; j++)
            for (int i = 0; i < nx; i++) {
                double x = i / (nx - 1.0), y = j / (ny - 1.0), z = k / (nz - 1.0);
                exact_solution(0, j, k, low[0]);
                exact_solution(nx - 1, j, k, high[0]);
                exact_solution(i, 0, k, low[1]);
                exact_solution(i, ny - 1, k, high[1]);
                exact_solution(i, j, 0, low[2]);
                exact_solution(i, j, nz - 1, high[2]);
                for (int m = 0; m < FIELDS; m++) {
                    double p = (1 - x) * low[0][m] + x * high[0][m], q = (1 - y) * low[1][m] + y * high[1][m],
                           s = (1 - z) * low[2][m] + z * high[2][m];
                    u[AT(k, j, i) + m] = p + q + s - p * q - q * s - p * s + p * q * s;
                    f[AT(k, j, i) + m] = 0.01 * (m + 1) * p * s;
                }
            }
}

KERNEL static void right_side(void)
{
    for (int k = 1; k < nz - 1; k++)
        for (int j = 1; j < ny - 1; j++)
            for (int i = 1; i < nx - 1; i++)
                for (int m = 0; m < FIELDS; m++) {
                    const double *w = u + AT(k, j, i) + m;
                    double around = w[FIELDS] + w[-FIELDS] + w[(size_t)nx * FIELDS] + *(w - (size_t)nx * FIELDS)
                                    + w[(size_t)ny * nx * FIELDS] + *(w - (size_t)ny * nx * FIELDS);
                    double other = u[AT(k, j, i) + (m + 1) % FIELDS];
                    r[AT(k, j, i) + m] = interval * (f[AT(k, j, i) + m] + around - 6.0 * *w - 0.05 * *w * other);
                }
}

KERNEL static void lower_jacobian(int k)
{
    for (int j = 1; j < ny - 1; j++)
        for (int i = 1; i < nx - 1; i++) {
            const double *w = u + AT(k, j, i);
            double *dd = d + BLOCK(j, i), *aa = a + BLOCK(j, i), *bb = b + BLOCK(j, i), *cc = c + BLOCK(j, i);
            for (int m = 0; m < FIELDS; m++)
                for (int n = 0; n < FIELDS; n++) {
                    dd[m * FIELDS + n] = (m == n) * (1.0 + 6.0 * interval) + interval * 0.05 * w[(m + n) % FIELDS];
                    aa[m * FIELDS + n] = -interval * ((m == n) + 0.01 * w[m] * w[n]);
                    bb[m * FIELDS + n] = -interval * ((m == n) - 0.01 * w[n]);
                    cc[m * FIELDS + n] = -interval * ((m == n) + 0.02 * w[m]);
                }
        }
}

KERNEL static void upper_jacobian(int k)
{
    for (int j = ny - 2; j >= 1; j--)
        for (int i = nx - 2; i >= 1; i--) {
            const double *w = u + AT(k, j, i);
            double *dd = d + BLOCK(j, i), *aa = a + BLOCK(j, i), *bb = b + BLOCK(j, i), *cc = c + BLOCK(j, i);
            for (int m = 0; m < FIELDS; m++)
                for (int n = 0; n < FIELDS; n++) {
                    dd[m * FIELDS + n] = (m == n) * (1.0 + 6.0 * interval) + interval * 0.05 * w[(m + n) % FIELDS];
                    aa[m * FIELDS + n] = -interval * ((m == n) - 0.01 * w[m] * w[n]);
                    bb[m * FIELDS + n] = -interval * ((m == n) + 0.01 * w[n]);
                    cc[m * FIELDS + n] = -interval * ((m == n) - 0.02 * w[m]);
                }
        }
}

/* Solve block * x = v by elimination; the diagonal dominates. */
KERNEL static void solve(const double *block, double *v)
{
    double t[FIELDS][FIELDS];
    for (int m = 0; m < FIELDS; m++)
        for (int n = 0; n < FIELDS; n++)
            t[m][n] = block[m * FIELDS + n];
    for (int p = 0; p < FIELDS; p++)
        for (int m = p + 1; m < FIELDS; m++) {
            double factor = t[m][p] / t[p][p];
            for (int n = p; n < FIELDS; n++)
                t[m][n] -= factor * t[p][n];
            v[m] -= factor * v[p];
        }
    for (int m = FIELDS - 1; m >= 0; m--) {
        for (int n = m + 1; n < FIELDS; n++)
            v[m] -= t[m][n] * v[n];
        v[m] /= t[m][m];
    }
}

KERNEL static void lower_sweep(int k)
{
    for (int j = 1; j < ny - 1; j++)
        for (int i = 1; i < nx - 1; i++) {
            double *v = r + AT(k, j, i);
            for (int m = 0; m < FIELDS; m++)
                for (int n = 0; n < FIELDS; n++)
                    v[m] -= omega * 0.1 * (a[BLOCK(j, i) + m * FIELDS + n] * r[AT(k - 1, j, i) + n]
                                           + b[BLOCK(j, i) + m * FIELDS + n] * r[AT(k, j - 1, i) + n]
                                           + c[BLOCK(j, i) + m * FIELDS + n] * r[AT(k, j, i - 1) + n]);
            solve(d + BLOCK(j, i), v);
        }
}

KERNEL static void upper_sweep(int k)
{
    for (int j = ny - 2; j >= 1; j--)
        for (int i = nx - 2; i >= 1; i--) {
            double t[FIELDS];
            for (int m = 0; m < FIELDS; m++) {
                t[m] = 0.0;
                for (int n = 0; n < FIELDS; n++)
                    t[m] += omega * 0.1 * (a[BLOCK(j, i) + m * FIELDS + n] * r[AT(k + 1, j, i) + n]
                                           + b[BLOCK(j, i) + m * FIELDS + n] * r[AT(k, j + 1, i) + n]
                                           + c[BLOCK(j, i) + m * FIELDS + n] * r[AT(k, j, i + 1) + n]);
            }
            solve(d + BLOCK(j, i), t);
            for (int m = 0; m < FIELDS; m++)
                r[AT(k, j, i) + m] -= t[m];
        }
}

KERNEL static void update(void)
{
    for (int k = 1; k < nz - 1; k++)
        for (int j = 1; j < ny - 1; j++)
            for (int i = 1; i < nx - 1; i++)
                for (int m = 0; m < FIELDS; m++)
                    u[AT(k, j, i) + m] += 0.8 * r[AT(k, j, i) + m];
}

KERNEL static void residual_norm(double *sums)
{
    for (int m = 0; m < FIELDS; m++)
        sums[m] = 0.0;
    for (int k = 1; k < nz - 1; k++)
        for (int j = 1; j < ny - 1; j++)
            for (int i = 1; i < nx - 1; i++)
                for (int m = 0; m < FIELDS; m++)
                    sums[m] += r[AT(k, j, i) + m] * r[AT(k, j, i) + m];
    for (int m = 0; m < FIELDS; m++)
        sums[m] = sqrt(sums[m] / ((nx - 2.0) * (ny - 2.0) * (nz - 2.0)));
}

KERNEL static void iterate(int iterations)
{
    double sums[FIELDS];
    right_side();
    for (int t = 1; t <= iterations; t++) {
        for (int k = 1; k < nz - 1; k++) {
            lower_jacobian(k);
            lower_sweep(k);
        }
        for (int k = nz - 2; k >= 1; k--) {
            upper_jacobian(k);
            upper_sweep(k);
        }
        update();
        right_side();
        if (t % 4 == 0) {
            residual_norm(sums);
            printf("%d %a %a %a\n", t, sums[0], sums[1], sums[2]);
        }
    }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 8);
    nx = next_size(&run, 33);
    ny = nx + 1;
    nz = nx + 2;
    size_t points = (size_t)nx * ny * nz * FIELDS, plane = (size_t)nx * ny * FIELDS * FIELDS;
    u = calloc(points, sizeof *u);
    f = calloc(points, sizeof *f);
    r = calloc(points, sizeof *r);
    d = calloc(plane, sizeof *d);
    a = calloc(plane, sizeof *a);
    b = calloc(plane, sizeof *b);
    c = calloc(plane, sizeof *c);
    if (!u || !f || !r || !d || !a || !b || !c)
        return 3;
    initialise();
    iterate(run.repetitions);
    double sum = 0.0;
    for (size_t n = 0; n < points; n++)
        sum += u[n];
    printf("sum %a\n", sum);
    return 0;
}
