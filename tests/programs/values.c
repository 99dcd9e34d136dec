/* Small nests whose values pass through registers in one way each: CASE chooses the body. n from argv. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef REAL
#define REAL double
#endif

#define M 48

REAL a[M][M], b[M][M], c[M][M], v[M], w[M];
int32_t p[M][M], q[M][M], r[M][M];
int64_t l[M][M];
int16_t h[M][M];
uint8_t u[M][M], t[M][M];

#define EACH(i, n) for (int i = 0; i < (n); i++)

__attribute__((noinline)) void kernel(int n, REAL x, int k0)
{
#if CASE == 1 /* a sum that is added afterwards */
    EACH(i, n) EACH(j, n) {
        REAL s = 0;
        EACH(k, n) s += a[i][k] * b[k][j];
        c[i][j] += s;
    }
#elif CASE == 2 /* a mean, then used in another loop */
    EACH(i, n) {
        REAL s = 0;
        EACH(j, n) s += a[i][j];
        s /= n;
        EACH(j, n) b[i][j] = a[i][j] - s;
    }
#elif CASE == 3 /* the largest, and a sum with it */
    EACH(i, n) {
        REAL s = a[i][0], z = 0;
        EACH(j, n) s = a[i][j] > s ? a[i][j] : s;
        EACH(j, n) z += b[i][j] / s;
        v[i] = z * x;
    }
#elif CASE == 4 /* rotation, in place */
    EACH(k, 3) EACH(i, n) {
        REAL before = a[i][0], here = a[i][1];
        for (int j = 1; j < n - 1; j++) {
            REAL after = a[i][j + 1];
            a[i][j] = before + here + after;
            before = here;
            here = after;
        }
    }
#elif CASE == 5 /* swap */
    EACH(i, n) EACH(j, n) {
        REAL s = a[i][j];
        a[i][j] = b[i][j];
        b[i][j] = s;
    }
#elif CASE == 6 /* fill and copy */
    EACH(i, n) {
        EACH(j, n) a[i][j] = 0;
        EACH(j, n) b[i][j] = c[i][j];
        EACH(j, n) c[i][j] = x;
    }
#elif CASE == 7 /* counters as data */
    EACH(i, n) EACH(j, n) {
        a[i][j] = i * 3 + j + k0;
        p[i][j] = i - 2 * j + k0;
        l[i][j] = i + (int64_t)j * 5;
    }
#elif CASE == 8 /* integers of several widths */
    EACH(i, n) EACH(j, n) {
        p[i][j] += u[i][j] * t[j][i];
        h[i][j] = (int16_t)(p[i][j] >> 3);
        u[i][j] = (uint8_t)(t[i][j] + 7);
        l[i][j] = l[i][j] * 3 + p[i][j];
    }
#elif CASE == 9 /* choices */
    EACH(i, n) EACH(j, n) {
        q[i][j] = p[i][j] > r[i][j] ? p[i][j] : r[i][j] + 1;
        c[i][j] = a[i][j] <= b[i][j] ? a[i][j] : x;
        r[i][j] = p[i][j] < 0 ? -p[i][j] : p[i][j];
    }
#elif CASE == 10 /* absolute values, square roots, negation */
    EACH(i, n) EACH(j, n) c[i][j] = sqrt(fabs(a[i][j])) - -b[i][j] * fabs(x);
#elif CASE == 11 /* conversions */
    EACH(i, n) EACH(j, n) {
        a[i][j] = p[i][j] * x;
        q[i][j] = (int)b[i][j];
        c[i][j] = (float)b[i][j] + l[i][j];
    }
#elif CASE == 12 /* several sums at once, and a scaled one */
    EACH(i, n) {
        REAL s = 0, z = 1, y = x;
        EACH(j, n) {
            s += a[i][j] * b[i][j];
            z *= a[i][j];
            y += s;
        }
        v[i] = s + z;
        w[i] = y / s;
    }
#elif CASE == 13 /* what the last iteration leaves */
    EACH(i, n) {
        REAL s = 0;
        EACH(j, n) {
            s = a[i][j] * x;
            b[i][j] += s;
        }
        v[i] = s;
    }
#elif CASE == 14 /* a triangle: sums that may be empty */
    EACH(i, n) {
        REAL s = v[i];
        EACH(j, i) s -= a[i][j] * v[j];
        v[i] = s / a[i][i];
    }
#elif CASE == 15 /* a register kept over stores that may change its cell */
    EACH(i, n) EACH(j, n) {
        REAL s = b[i][j];
        EACH(k, n) {
            b[i][k] = a[i][k] + k;
            c[i][k] += s * a[j][k];
        }
    }
#elif CASE == 16 /* running minimum, prefix sums */
    EACH(i, n) {
        REAL s = 0, z = a[i][0];
        EACH(j, n) {
            s += a[i][j];
            b[i][j] = s;
            z = a[i][j] < z ? a[i][j] : z;
            c[i][j] = z;
        }
    }
#elif CASE == 17 /* integer reductions */
    EACH(i, n) {
        int s = 0, z = -1;
        int64_t y = 0;
        EACH(j, n) {
            s += p[i][j] * q[i][j];
            z &= q[i][j];
            y += p[i][j];
        }
        r[i][0] = s;
        r[i][1] += z;
        l[i][0] = y;
    }
#elif CASE == 18 /* conditions on counters */
    EACH(i, n) EACH(j, n) {
        if (j > i) a[i][j] = b[i][j];
        else if (j == i) a[i][j] = x;
        c[i][j] += i == j ? 1 : 0;
    }
#elif CASE == 19 /* bits of both kinds */
    EACH(i, n) EACH(j, n) {
        p[i][j] = (p[i][j] ^ q[i][j]) & 0xff00ff | r[i][j] << 3;
        u[i][j] = u[i][j] & t[i][j] ^ 0x55;
        l[i][j] = (int64_t)((uint64_t)l[i][j] >> 7) - (l[i][j] >> 5);
    }
#elif CASE == 20 /* two nests, values of the first used in the second */
    EACH(i, n) {
        REAL s = 0;
        EACH(j, n) s += a[i][j] * a[i][j];
        s = sqrt(s);
        v[i] = s;
        EACH(j, n) b[i][j] = a[i][j] / s;
        EACH(j, n) {
            REAL z = 0;
            EACH(k, n) z += b[i][k] * c[k][j];
            w[j] += z * s;
        }
    }
#endif
}

int main(int argc, char **argv)
{
    int n = atoi(argv[1]);
    EACH(m, M * M) {
        int i = m / M, j = m % M;
        a[i][j] = 1 + (i * 7 + j * 3) % 11 * 0.125;
        b[i][j] = 2 - (i * 5 + j * 11) % 13 * 0.25;
        c[i][j] = (i - j) * 0.5;
        v[i] = i * 0.75 + 1;
        w[j] = j;
        p[i][j] = i * 37 % 19 - j;
        q[i][j] = (i + 3) * (j - 5);
        r[i][j] = i ^ j;
        l[i][j] = (int64_t)(i - j) << 33;
        h[i][j] = i;
        u[i][j] = i * 31 + j;
        t[i][j] = i + j * 17;
    }
    kernel(n, 1.5, argc);
    printf("%a %d %ld\n", (double)a[1][2], p[2][3], (long)l[3][4]);
    return 0;
}
