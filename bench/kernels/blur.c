/* Separable blur of an image with three interleaved channels: along the rows, then along the columns. */
#include "suite.h"

KERNEL void blur(int h, int w, float *image, float *rows, float *out)
{
    int line = 3 * w;
    for (int y = 0; y < h; y++)
        for (int x = 2; x < w - 2; x++)
            for (int c = 0; c < 3; c++)
                rows[y * line + 3 * x + c] = 0.0625f * image[y * line + 3 * (x - 2) + c] +
                                             0.25f * image[y * line + 3 * (x - 1) + c] +
                                             0.375f * image[y * line + 3 * x + c] +
                                             0.25f * image[y * line + 3 * (x + 1) + c] +
                                             0.0625f * image[y * line + 3 * (x + 2) + c];
    for (int y = 2; y < h - 2; y++)
        for (int x = 0; x < w; x++)
            for (int c = 0; c < 3; c++)
                out[y * line + 3 * x + c] = 0.0625f * rows[(y - 2) * line + 3 * x + c] +
                                            0.25f * rows[(y - 1) * line + 3 * x + c] +
                                            0.375f * rows[y * line + 3 * x + c] +
                                            0.25f * rows[(y + 1) * line + 3 * x + c] +
                                            0.0625f * rows[(y + 2) * line + 3 * x + c];
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 154);
    int h = first_size(&run, 1999), w = next_size(&run, 1787), passes = next_size(&run, 4);
    size_t count = (size_t)h * w * 3;
    float *image = singles(count, 1), *rows = singles(count, 2), *out = singles(count, 3);
    for (int r = 0; r < run.repetitions; r++) {
        image[r % count] += 0.25f;
        tick(&run);
        for (int pass = 0; pass < passes; pass++)
            blur(h, w, pass % 2 ? out : image, rows, pass % 2 ? image : out);
        tock(&run);
        observe_single(&run, image, count);
    }
    report_single("image", image, count);
    return finish(&run);
}
