/* Counts of the grey values of an image: the address of each count depends on the data. */
#include "suite.h"

KERNEL void histogram(int h, int w, const uint8_t *image, int32_t *count)
{
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            count[image[y * w + x]]++;
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 191);
    int h = first_size(&run, 5003), w = next_size(&run, 6007), images = next_size(&run, 8);
    uint8_t *image = bytes((size_t)h * w, 1);
    int32_t *count = integers(256, 2);
    for (int r = 0; r < run.repetitions; r++) {
        memset(count, 0, 256 * sizeof *count);
        tick(&run);
        for (int i = 0; i < images; i++)
            histogram(h, w, image, count);
        tock(&run);
        observe_integer(&run, count, 256);
    }
    report_integer("count", count, 256);
    return finish(&run);
}
