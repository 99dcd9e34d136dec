/* Two-dimensional convolution of an image with a 7 x 7 mask given at run time. */
#include "suite.h"

#define K 7

KERNEL void convolve(int h, int w, const float *image, float mask[K][K], float *out)
{
    for (int y = 0; y < h - K + 1; y++)
        for (int x = 0; x < w - K + 1; x++) {
            float sum = 0;
            for (int dy = 0; dy < K; dy++)
                for (int dx = 0; dx < K; dx++)
                    sum += image[(y + dy) * w + x + dx] * mask[dy][dx];
            out[y * w + x] = sum;
        }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 143);
    int h = first_size(&run, 1999), w = next_size(&run, 2477);
    size_t count = (size_t)h * w;
    float *image = singles(count, 1), *out = singles(count, 2), *mask = singles(K * K, 3);
    for (int r = 0; r < run.repetitions; r++) {
        image[r % count] += 0.25f;
        tick(&run);
        convolve(h, w, image, (float (*)[K])mask, out);
        tock(&run);
        observe_single(&run, out, count);
    }
    report_single("out", out, count);
    return finish(&run);
}
