/* c += a b, with the loops as they are written down (TILE 0) or in tiles of TILE in each direction; the argument says
   how often. */
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 4000
#endif
#ifndef TILE
#define TILE 32
#endif

#define END(start) (N % TILE && (start) + TILE > N ? N : (start) + TILE)

static double a[N][N] __attribute__((aligned(4096)));
static double b[N][N] __attribute__((aligned(4096)));
static double c[N][N] __attribute__((aligned(4096)));

__attribute__((noinline)) static void product(void)
{
#if TILE
    for (int is = 0; is < N; is += TILE)
        for (int js = 0; js < N; js += TILE)
            for (int ks = 0; ks < N; ks += TILE)
                for (int i = is; i < END(is); i++)
                    for (int j = js; j < END(js); j++) {
                        double sum = c[i][j];
                        for (int k = ks; k < END(ks); k++)
                            sum += a[i][k] * b[k][j];
                        c[i][j] = sum;
                    }
#else
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            double sum = c[i][j];
            for (int k = 0; k < N; k++)
                sum += a[i][k] * b[k][j];
            c[i][j] = sum;
        }
#endif
}

int main(int argc, char **argv)
{
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            a[i][j] = (i * 7 + j) % 13;
            b[i][j] = (i + j * 5) % 11;
        }
    for (int again = argc > 1 ? atoi(argv[1]) : 1; again > 0; again--)
        product();
    double sum = 0;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            sum += c[i][j];
    printf("%a\n", sum);
}
