/* All-pairs shortest paths by Floyd and Warshall, whole numbers. */
#include "suite.h"

KERNEL void shortest_paths(int n, int32_t d[n][n])
{
    for (int k = 0; k < n; k++)
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++)
                d[i][j] = d[i][j] < d[i][k] + d[k][j] ? d[i][j] : d[i][k] + d[k][j];
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 55);
    int n = first_size(&run, 797);
    size_t count = (size_t)n * n;
    int32_t *d = integers(count, 1);
    for (int r = 0; r < run.repetitions; r++) {
        fill_integer(d, count, r);
        for (int i = 0; i < n; i++)
            d[(size_t)i * n + i] = 0;
        tick(&run);
        shortest_paths(n, (int32_t (*)[n])d);
        tock(&run);
        observe_integer(&run, d, count);
    }
    report_integer("d", d, count);
    return finish(&run);
}
