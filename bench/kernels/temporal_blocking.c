/* A Jacobi solver of Poisson's equation with 19 points, blocked in space and in time: each block of 64 x 32 x 32 points
   is carried on by four steps before the next one is begun, over as much of its surroundings as that takes. */
#include <stdio.h>
#include <stdlib.h>

enum { BX = 64, BY = 32, BZ = 32, STEPS_AT_ONCE = 4, HALO = STEPS_AT_ONCE };
enum { WX = BX + 2 * HALO, WY = BY + 2 * HALO, WZ = BZ + 2 * HALO };

typedef struct { float *first; long row, plane; } grid;   /* first: of the point 0, 0, 0 of the whole domain */

static int nx, ny, nz;

static int least(int a, int b) { return a < b ? a : b; }
static int most(int a, int b) { return a > b ? a : b; }

__attribute__((noinline)) static void copy(grid to, grid from, const int *low, const int *high)
{
    for (int z = low[2]; z < high[2]; z++)
        for (int y = low[1]; y < high[1]; y++)
            for (int x = low[0]; x < high[0]; x++)
                to.first[z * to.plane + y * to.row + x] = from.first[z * from.plane + y * from.row + x];
}

__attribute__((noinline)) static void update(grid to, grid from, grid right, const int *low, const int *high)
{
    const long r = from.row, p = from.plane;
    for (int z = low[2]; z < high[2]; z++)
        for (int y = low[1]; y < high[1]; y++) {
            const float *c = from.first + z * p + y * r, *f = right.first + z * right.plane + y * right.row;
            float *w = to.first + z * to.plane + y * to.row;
            for (int x = low[0]; x < high[0]; x++)
                w[x] = (2.0f * (c[x - 1] + c[x + 1] + c[x - r] + c[x + r] + c[x - p] + c[x + p])
                        + c[x - r - 1] + c[x - r + 1] + c[x + r - 1] + c[x + r + 1]
                        + c[x - p - 1] + c[x - p + 1] + c[x + p - 1] + c[x + p + 1]
                        + c[x - p - r] + c[x - p + r] + c[x + p - r] + c[x + p + r]
                        - f[x]) * (1.0f / 24.0f) + 0.0f * c[x];
        }
}

static void span(int first, int size, int wide, int n, int inside, int *low, int *high)
{
    *low = most(first - wide, inside);
    *high = least(first + size + wide, n - inside);
}

static void steps(grid to, grid from, grid right, float *one, float *two)
{
    for (int bz = 0; bz < nz; bz += BZ)
        for (int by = 0; by < ny; by += BY)
            for (int bx = 0; bx < nx; bx += BX) {
                long origin = (long)(bz - HALO) * WX * WY + (long)(by - HALO) * WX + (bx - HALO);
                grid blocks[2] = {{one - origin, WX, (long)WX * WY}, {two - origin, WX, (long)WX * WY}};
                int low[3], high[3];
                span(bx, BX, HALO, nx, 0, &low[0], &high[0]);
                span(by, BY, HALO, ny, 0, &low[1], &high[1]);
                span(bz, BZ, HALO, nz, 0, &low[2], &high[2]);
                copy(blocks[0], from, low, high);
                copy(blocks[1], from, low, high);
                for (int step = 0; step < STEPS_AT_ONCE; step++) {
                    int wide = STEPS_AT_ONCE - 1 - step;
                    span(bx, BX, wide, nx, 1, &low[0], &high[0]);
                    span(by, BY, wide, ny, 1, &low[1], &high[1]);
                    span(bz, BZ, wide, nz, 1, &low[2], &high[2]);
                    update(step == STEPS_AT_ONCE - 1 ? to : blocks[(step + 1) & 1],
                           step ? blocks[step & 1] : from, right, low, high);
                }
            }
}

int main(int argc, char **argv)
{
    nx = argc > 1 ? atoi(argv[1]) : 129, ny = argc > 2 ? atoi(argv[2]) : 65, nz = argc > 3 ? atoi(argv[3]) : 65;
    int total = argc > 4 ? atoi(argv[4]) : 8;
    long points = (long)nx * ny * nz, block = (long)WX * WY * WZ;
    float *cells = malloc((3 * points + 2 * block) * sizeof *cells);
    if (!cells)
        return 1;
    grid one = {cells, nx, (long)nx * ny}, two = {cells + points, nx, (long)nx * ny};
    grid right = {cells + 2 * points, nx, (long)nx * ny};
    for (long i = 0; i < points; i++) {
        one.first[i] = two.first[i] = (float)(i * 37 % 101) / 101.0f;
        right.first[i] = (float)(i * 53 % 89) / 89.0f;
    }
    for (int done = 0; done < total; done += STEPS_AT_ONCE) {
        steps(two, one, right, cells + 3 * points, cells + 3 * points + block);
        grid swap = one;
        one = two;
        two = swap;
    }
    double sum = 0;
    for (long i = 0; i < points; i++)
        sum += one.first[i];
    printf("%a\n", sum);
    free(cells);
}
