/* Recursive smoothing of an image, forward and backward along the rows and along the columns. */
#include "suite.h"

KERNEL void smooth(int h, int w, float a, float b, float image[h][w], float forward[h][w], float out[h][w])
{
    for (int y = 0; y < h; y++) {
        float previous = 0;
        for (int x = 0; x < w; x++) {
            previous = a * image[y][x] + b * previous;
            forward[y][x] = previous;
        }
        previous = 0;
        for (int x = w - 1; x >= 0; x--) {
            out[y][x] = forward[y][x] + previous;
            previous = a * image[y][x] + b * previous;
        }
    }
    for (int x = 0; x < w; x++) {
        float previous = 0;
        for (int y = 0; y < h; y++) {
            previous = a * out[y][x] + b * previous;
            forward[y][x] = previous;
        }
        previous = 0;
        for (int y = h - 1; y >= 0; y--) {
            float here = out[y][x];
            out[y][x] = forward[y][x] + previous;
            previous = a * here + b * previous;
        }
    }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 98);
    int h = first_size(&run, 1801), w = next_size(&run, 2003), passes = next_size(&run, 5);
    size_t count = (size_t)h * w;
    float *image = singles(count, 1), *forward = singles(count, 2), *out = singles(count, 3);
    for (int r = 0; r < run.repetitions; r++) {
        image[r % count] += 0.25f;
        tick(&run);
        for (int pass = 0; pass < passes; pass++)
            smooth(h, w, 0.3f, 0.7f, (float (*)[w])image, (float (*)[w])forward, (float (*)[w])out);
        tock(&run);
        observe_single(&run, out, count);
    }
    report_single("out", out, count);
    return finish(&run);
}
