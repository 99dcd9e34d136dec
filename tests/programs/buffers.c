/* Sweeps whose iterations exchange buffers: two for diffusion, three for waves, one time step an iteration; the number
   of steps is even and odd in turn. usage: buffers n repetitions */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define APART __attribute__((noinline))

APART static double *diffuse(double *now, double *next, int n, int steps)
{
    for (int t = 0; t < steps; t++) {
        for (int i = 1; i < n - 1; i++)
            for (int j = 1; j < n - 1; j++)
                next[i * n + j] = 0.2 * (now[i * n + j] + now[(i - 1) * n + j] + now[(i + 1) * n + j]
                                         + now[i * n + j - 1] + now[i * n + j + 1]);
        double *last = now;
        now = next;
        next = last;
    }
    return now;
}

APART static float *wave(float *before, float *now, float *next, int n, int steps)
{
    while (steps-- > 0) {
        for (int i = 1; i < n - 1; i++)
            for (int j = 1; j < n - 1; j++)
                next[i * n + j] = 2.0f * now[i * n + j] - before[i * n + j]
                                  + 0.1f * (now[(i - 1) * n + j] + now[(i + 1) * n + j] - 2.0f * now[i * n + j]);
        float *last = before;
        before = now;
        now = next;
        next = last;
    }
    return now;
}

static uint64_t hash(const void *data, size_t size)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < size / 4; i++)
        sum = sum * 1099511628211u + ((const uint32_t *)data)[i];
    return sum;
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 301, repetitions = argc > 2 ? atoi(argv[2]) : 100;
    size_t count = (size_t)n * n;
    double *a = malloc(2 * count * sizeof *a), *b = a + count;
    float *u = malloc(3 * count * sizeof *u), *v = u + count, *w = v + count;
    for (size_t i = 0; i < count; i++) {
        a[i] = b[i] = (double)(i * 2654435761u % 1021);
        u[i] = v[i] = w[i] = (float)(i * 2654435761u % 509);
    }
    for (int r = 0; r < repetitions; r++) {
        int steps = 40 + r % 8;
        double *d = diffuse(a, b, n, steps);
        float *f = wave(u, v, w, n, steps);
        d[count / 2 + r % n] += 1.0;
        f[count / 2 + r % n] *= 0.5f;
        if (r % 256 == 0)
            fprintf(stderr, "%d\n", r);
    }
    printf("%016llx %016llx\n", (unsigned long long)hash(a, 2 * count * sizeof *a),
           (unsigned long long)hash(u, 3 * count * sizeof *u));
    return 0;
}
