/* A long loop that sets up, once, and a longer nest behind it. */
#include <stdio.h>

enum { MANY = 5000, N = 1300 };

static double all[MANY][MANY], a[N][N], b[N][N], c[N][N];

__attribute__((noinline)) static void set_up(void)
{
    for (int i = 0; i < MANY; i++)
        for (int j = 0; j < MANY; j++)
            all[i][j] = (i * 7 + j) % 13 + (i + j * 5) % 11;
}

__attribute__((noinline)) static void product(void)
{
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            double sum = c[i][j];
            for (int k = 0; k < N; k++)
                sum += a[i][k] * b[k][j];
            c[i][j] = sum;
        }
}

int main(void)
{
    set_up();
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            a[i][j] = all[i][j];
            b[i][j] = all[j][2 * i];
        }
    for (int again = 0; again < 4; again++)
        product();
    double sum = 0;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            sum += c[i][j];
    printf("%a\n", sum);
}
