/* Loops whose dependences through memory are known. */
#include <stdio.h>
#include <string.h>

#define N 1000
#define LOOP __attribute__((noinline)) static void

static double a[N], b[N], c[N][64];
static long h[16];
static char text[4 * N];

LOOP fill(void) { for (int i = 0; i < N; i++) a[i] = i; }
LOOP copy(void) { for (int i = 0; i < N; i++) b[i] = a[i] * 2; }
LOOP chain(void) { for (int i = 3; i < N; i++) a[i] = a[i - 3] + 1; }
LOOP count(void) { for (int i = 0; i < N; i++) h[i & 15] += i; }
LOOP sweep(void)
{
    for (int t = 0; t < 10; t++)
        for (int i = 1; i < N - 1; i++)
            b[i] = 0.5 * (a[i - 1] + a[i + 1]);
}
LOOP row(int r) { for (int j = 0; j < 64; j++) c[r][j] = c[r - 1][j] + 1; }
LOOP rows(void) { for (int r = 1; r < N; r++) row(r); }
LOOP shift(void) { for (int i = 0; i < N - 1; i++) text[i] = text[i + 1] + 1; }

int main(void)
{
    fill();
    copy();
    chain();
    count();
    sweep();
    rows();
    memset(text, 'x', sizeof text);
    shift();
    printf("%f %f %ld %f %d\n", a[N - 1], b[5], h[3], c[N - 1][3], text[7]);
    return 0;
}
