/* Nests one after the other in one loop of main, each of another kind: neighbours from -1 to 1, indices that end at the
   edges, operations that only some elements may have. usage: phases n repetitions */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <xmmintrin.h>

static int clamp(int v, int low, int high)
{
    return v < low ? low : v > high ? high : v;
}

static void erode(int n, const short *restrict in, short *restrict out)
{
    for (int y = 1; y < n - 1; y++)
        for (int x = 1; x < n - 1; x++) {
            short least = in[y * n + x];
            for (int dy = -1; dy <= 1; dy++)
                for (int dx = -1; dx <= 1; dx++) {
                    short near = in[(y + dy) * n + x + dx];
                    least = near < least ? near : least;
                }
            out[y * n + x] = least;
        }
}

static void blur(int n, const float *restrict in, const float *restrict tap, float *restrict out)
{
    for (int x = 0; x < n; x++)
        for (int y = 0; y < n; y++) {
            float sum = in[y * n + x];
            for (int t = 1; t < 4; t++)
                sum += tap[t] * (in[clamp(y - t, 0, n - 1) * n + x] + in[clamp(y + t, 0, n - 1) * n + x]);
            out[y * n + x] = sum;
        }
}

/* Elsewhere the product would be too large, and raise the flag that says so. */
static void square(int n, const double *restrict in, double *restrict out)
{
    for (int i = 0; i < n * n; i++) {
        double v = in[i];
        if (v < 1e10)
            v = v * v * 0.5;
        out[i] = v;
    }
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 501, repetitions = argc > 2 ? atoi(argv[2]) : 10;
    size_t count = (size_t)n * n;
    short *grey = malloc(count * sizeof *grey), *least = calloc(count, sizeof *least);
    float *image = malloc(count * sizeof *image), *blurred = malloc(count * sizeof *blurred);
    float tap[4] = {0.25f, 0.125f, 0.0625f, 0.03125f};
    double *given = malloc(count * sizeof *given), *squares = malloc(count * sizeof *squares);
    for (size_t i = 0; i < count; i++) {
        grey[i] = (short)(i * 2654435761u >> 20);
        image[i] = (float)(i * 2654435761u % 1021);
        given[i] = i % 3 ? (double)(i % 11) : 0x1p700;
    }
    _mm_setcsr(0x1f80);
    for (int r = 0; r < repetitions; r++) {
        erode(n, grey, least);
        blur(n, image, tap, blurred);
        square(n, given, squares);
        grey[r % count] ^= least[count / 2];
        given[r % count] += squares[count / 2] < 4.0;
        image[r % count] += blurred[count / 2];
        if (r % 100 == 0)
            fprintf(stderr, "%d\n", r);
    }
    printf("flags %x\n", _mm_getcsr() & 63);
    uint64_t sum = 0;
    double total = 0.0;
    for (size_t i = 0; i < count; i++) {
        sum = sum * 31 + (uint16_t)least[i];
        total += blurred[i] + (squares[i] < 1e100 ? squares[i] : 1.0);
    }
    printf("%016llx %a\n", (unsigned long long)sum, total);
    return 0;
}
