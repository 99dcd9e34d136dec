/* suite.h for Fortran: the main program is here and calls the subroutine `work` of the Fortran file, which calls back. */
#include "suite.h"

static struct run run;

void work(int32_t repetitions);

int32_t suite_size(int32_t otherwise)
{
    return next_size(&run, otherwise);
}

void suite_tick(void)
{
    tick(&run);
}

void suite_tock(void)
{
    tock(&run);
}

void suite_fill(double *x, int64_t count, int64_t seed)
{
    fill_real(x, (size_t)count, (uint64_t)seed);
}

void suite_observe(const double *x, int64_t count)
{
    observe_real(&run, x, (size_t)count);
}

void suite_report(const double *x, int64_t count)
{
    report_real("result", x, (size_t)count);
}

int main(int argc, char **argv)
{
    run = begin(argc, argv, 80);
    work(run.repetitions);
    return finish(&run);
}
