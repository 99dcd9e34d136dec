/* Sum-area table of a grey image: sums over all rectangles that start in the corner. */
#include "suite.h"

KERNEL void sum_area(int h, int w, const uint8_t *image, uint32_t *table)
{
    table[0] = image[0];
    for (int x = 1; x < w; x++)
        table[x] = table[x - 1] + image[x];
    for (int y = 1; y < h; y++) {
        table[y * w] = table[(y - 1) * w] + image[y * w];
        for (int x = 1; x < w; x++)
            table[y * w + x] = image[y * w + x] + table[(y - 1) * w + x] + table[y * w + x - 1] -
                               table[(y - 1) * w + x - 1];
    }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 186);
    int h = first_size(&run, 3989), w = next_size(&run, 4021), images = next_size(&run, 10);
    size_t count = (size_t)h * w;
    uint8_t *image = bytes(count, 1);
    uint32_t *table = (uint32_t *)integers(count, 2);
    for (int r = 0; r < run.repetitions; r++) {
        tick(&run);
        for (int i = 0; i < images; i++) {
            image[i] += 1;
            sum_area(h, w, image, table);
        }
        tock(&run);
        observe_integer(&run, (int32_t *)table, count);
    }
    report_integer("table", (int32_t *)table, count);
    return finish(&run);
}
