/* Global sequence alignment: the table of best scores of all pairs of prefixes. */
#include "suite.h"

static inline int larger(int a, int b)
{
    return a > b ? a : b;
}

KERNEL void align(int n, int m, const uint8_t *a, const uint8_t *b, int *score)
{
    int width = m + 1;
    for (int i = 0; i <= n; i++)
        score[i * width] = -2 * i;
    for (int j = 0; j <= m; j++)
        score[j] = -2 * j;
    for (int i = 1; i <= n; i++)
        for (int j = 1; j <= m; j++) {
            int match = score[(i - 1) * width + j - 1] + (a[i - 1] == b[j - 1] ? 3 : -1);
            int gap = larger(score[(i - 1) * width + j], score[i * width + j - 1]) - 2;
            score[i * width + j] = larger(match, gap);
        }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 215);
    int n = first_size(&run, 5801), m = next_size(&run, 5003);
    size_t count = ((size_t)n + 1) * ((size_t)m + 1);
    uint8_t *a = bytes(n, 1), *b = bytes(m, 2);
    int *score = integers(count, 3);
    for (int i = 0; i < n; i++)
        a[i] %= 4;
    for (int j = 0; j < m; j++)
        b[j] %= 4;
    for (int r = 0; r < run.repetitions; r++) {
        a[r % n] = (a[r % n] + 1) % 4;
        tick(&run);
        align(n, m, a, b, score);
        tock(&run);
        observe_integer(&run, score, count);
    }
    report_integer("score", score, count);
    return finish(&run);
}
