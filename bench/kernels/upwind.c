/* Transport by an upwind scheme, the flux through each face from a function of its own. */
#include "suite.h"

KERNEL double flux(double left, double right, double speed)
{
    return 0.5 * speed * (left + right) - 0.375 * (right - left);
}

KERNEL void transport(int n, int m, double ratio, double *u, double *next, double *vx, double *vy)
{
    for (int i = 1; i < n - 1; i++)
        for (int j = 1; j < m - 1; j++) {
            double west = flux(u[i * m + j - 1], u[i * m + j], vx[i * m + j]);
            double east = flux(u[i * m + j], u[i * m + j + 1], vx[i * m + j + 1]);
            double north = flux(u[(i - 1) * m + j], u[i * m + j], vy[i * m + j]);
            double south = flux(u[i * m + j], u[(i + 1) * m + j], vy[(i + 1) * m + j]);
            next[i * m + j] = u[i * m + j] - ratio * (east - west + south - north);
        }
    for (int i = 1; i < n - 1; i++)
        for (int j = 1; j < m - 1; j++)
            u[i * m + j] = next[i * m + j];
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 66);
    int n = first_size(&run, 1201), m = next_size(&run, 1409), steps = next_size(&run, 20);
    size_t count = (size_t)n * m;
    double *u = reals(count, 1), *next = reals(count, 2), *vx = reals(count, 3), *vy = reals(count, 4);
    for (int r = 0; r < run.repetitions; r++) {
        fill_real(u, count, r);
        tick(&run);
        for (int t = 0; t < steps; t++)
            transport(n, m, 0.25, u, next, vx, vy);
        tock(&run);
        observe_real(&run, u, count);
    }
    report_real("u", u, count);
    return finish(&run);
}
