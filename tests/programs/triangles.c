/* Nests whose inner bounds depend on outer counters: program size. -DNEST=name selects one; -DFIXED=size makes the
   arrays static. */
#include <stdlib.h>

#define NOINLINE __attribute__((noinline))

#ifdef FIXED
enum { n = FIXED };
static double a[n][n], b[n][n], c[n][n], x[n], y[n];
#define ARGUMENTS void
#define PASSED
#else
#define ARGUMENTS int n, double a[n][n], double b[n][n], double c[n][n], double *x, double *y
#define PASSED n, a, b, c, x, y
#endif

#define CAT(one, two) one##two
#define NAMED(nest) CAT(is_, nest)
enum { is_syrk = 1, is_syrk_rows, is_trmm, is_cholesky, is_lu, is_lu_right, is_forward, is_backward, is_correlation,
       is_blocked, is_branches, is_lu_flat, is_both_ways };

static NOINLINE void nest(ARGUMENTS)
{
    if (NAMED(NEST) == is_syrk) {
        for (int i = 0; i < n; i++)
            for (int j = 0; j <= i; j++)
                for (int k = 0; k < n; k++)
                    c[i][j] += a[i][k] * a[j][k];
    } else if (NAMED(NEST) == is_syrk_rows) {
        for (int i = 0; i < n; i++) {
            for (int j = 0; j <= i; j++)
                c[i][j] *= 1.5;
            for (int k = 0; k < n; k++)
                for (int j = 0; j <= i; j++)
                    c[i][j] += a[i][k] * a[j][k];
        }
    } else if (NAMED(NEST) == is_trmm) {
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++) {
                for (int k = i + 1; k < n; k++)
                    b[i][j] += a[k][i] * b[k][j];
                b[i][j] = 1.5 * b[i][j];
            }
    } else if (NAMED(NEST) == is_cholesky) {
        for (int i = 0; i < n; i++) {
            for (int j = 0; j < i; j++) {
                for (int k = 0; k < j; k++)
                    a[i][j] -= a[i][k] * a[j][k];
                a[i][j] /= a[j][j];
            }
            for (int k = 0; k < i; k++)
                a[i][i] -= a[i][k] * a[i][k];
        }
    } else if (NAMED(NEST) == is_lu) {
        for (int i = 0; i < n; i++) {
            for (int j = 0; j < i; j++) {
                for (int k = 0; k < j; k++)
                    a[i][j] -= a[i][k] * a[k][j];
                a[i][j] /= a[j][j];
            }
            for (int j = i; j < n; j++)
                for (int k = 0; k < i; k++)
                    a[i][j] -= a[i][k] * a[k][j];
        }
    } else if (NAMED(NEST) == is_lu_right) {
        for (int k = 0; k < n; k++)
            for (int i = k + 1; i < n; i++) {
                a[i][k] /= a[k][k];
                for (int j = k + 1; j < n; j++)
                    a[i][j] -= a[i][k] * a[k][j];
            }
    } else if (NAMED(NEST) == is_forward) {
        for (int i = 0; i < n; i++) {
            x[i] = y[i];
            for (int j = 0; j < i; j++)
                x[i] -= a[i][j] * x[j];
            x[i] /= a[i][i];
        }
    } else if (NAMED(NEST) == is_backward) {
        for (int i = n - 1; i >= 0; i--) {
            x[i] = y[i];
            for (int j = n - 1; j > i; j--)
                x[i] -= a[i][j] * x[j];
            x[i] /= a[i][i];
        }
    } else if (NAMED(NEST) == is_correlation) {
        for (int i = 0; i < n - 1; i++) {
            c[i][i] = 1.0;
            for (int j = i + 1; j < n; j++) {
                c[i][j] = 0.0;
                for (int k = 0; k < n; k++)
                    c[i][j] += a[k][i] * a[k][j];
                c[j][i] = c[i][j];
            }
        }
    } else if (NAMED(NEST) == is_blocked) {
        for (int block = 0; block < n; block += 4)
            for (int i = block; i < (block + 4 < n ? block + 4 : n); i++)
                for (int j = 0; j < n; j++)
                    c[i][j] += a[i][j] * b[j][i];
    } else if (NAMED(NEST) == is_branches) {
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++)
                if (j > i)
                    c[i][j] += a[i][j];
                else
                    c[i][j] -= b[i][j];
    } else if (NAMED(NEST) == is_lu_flat) {
        for (int k = 0; k < n; k++)
            for (int i = k + 1; i < n; i++) {
                a[0][i * n + k] /= a[0][k * n + k];
                for (int j = k + 1; j < n; j++)
                    a[0][i * n + j] -= a[0][i * n + k] * a[0][k * n + j];
            }
    } else if (NAMED(NEST) == is_both_ways) {
        for (int i = 0; i < n; i++) {
            double before = 0;
            for (int j = 0; j < n; j++)
                c[i][j] = before = 0.5 * a[i][j] + 0.25 * before;
            before = 0;
            for (int j = n - 1; j >= 0; j--) {
                b[i][j] = c[i][j] + before;
                before = 0.5 * a[i][j] + 0.25 * before;
            }
        }
    }
}

static volatile double used; /* or else the compiler leaves out what nobody looks at */

static void fill(double *array, int count, int seed)
{
    for (int i = 0; i < count; i++)
        array[i] = 1 + (i * 7 + seed) % 11;
}

int main(int argc, char **argv)
{
#ifdef FIXED
    (void)argc, (void)argv;
    fill(a[0], n * n, 1), fill(b[0], n * n, 2), fill(c[0], n * n, 3), fill(x, n, 4), fill(y, n, 5);
#else
    int n = argc > 1 ? atoi(argv[1]) : 9;
    double (*a)[n] = malloc(sizeof(double[n][n])), (*b)[n] = malloc(sizeof(double[n][n]));
    double (*c)[n] = malloc(sizeof(double[n][n])), *x = malloc(sizeof(double[n])), *y = malloc(sizeof(double[n]));
    fill(a[0], n * n, 1), fill(b[0], n * n, 2), fill(c[0], n * n, 3), fill(x, n, 4), fill(y, n, 5);
#endif
    nest(PASSED);
    used = a[n / 2][n / 3] + b[n / 2][n / 3] + c[n / 2][n / 3] + x[n / 2] + y[n / 2];
    return 0;
}
