/* A sum over a linked list in random order: each address is loaded. */
#include "suite.h"

struct cell {
    double value;
    struct cell *next;
};

KERNEL double total(const struct cell *cell)
{
    double sum = 0;
    for (; cell; cell = cell->next)
        sum += cell->value;
    return sum;
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 134);
    int n = first_size(&run, 300007), times = next_size(&run, 25);
    struct cell *cell = (struct cell *)memory(n * sizeof *cell);
    double *value = reals(n, 1), sum = 0;
    int *order = (int *)memory(n * sizeof *order);
    uint64_t state = 2;
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        state = step(state);
        int other = (int)((state >> 33) % i), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    for (int i = 0; i < n; i++) {
        cell[order[i]].value = value[i];
        cell[order[i]].next = i + 1 < n ? &cell[order[i + 1]] : NULL;
    }
    for (int r = 0; r < run.repetitions; r++) {
        cell[r % n].value += 0.25;
        tick(&run);
        for (int time = 0; time < times; time++)
            sum = total(&cell[order[0]]);
        tock(&run);
        observe_real(&run, &sum, 1);
    }
    report_real("sum", &sum, 1);
    return finish(&run);
}
