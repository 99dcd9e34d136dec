/* Softened gravity between all pairs of particles, an array of structures. */
#include "suite.h"

struct particle {
    double x, y, z, mass, ax, ay, az;
};

KERNEL void gravity(int n, double softening, struct particle *p)
{
    for (int i = 0; i < n; i++) {
        double ax = 0, ay = 0, az = 0;
        for (int j = 0; j < n; j++) {
            double dx = p[j].x - p[i].x, dy = p[j].y - p[i].y, dz = p[j].z - p[i].z;
            double square = dx * dx + dy * dy + dz * dz + softening;
            double factor = p[j].mass / (square * square);
            ax += factor * dx;
            ay += factor * dy;
            az += factor * dz;
        }
        p[i].ax = ax;
        p[i].ay = ay;
        p[i].az = az;
    }
}

int main(int argc, char **argv)
{
    struct run run = begin(argc, argv, 82);
    int n = first_size(&run, 9973);
    struct particle *p = (struct particle *)reals((size_t)n * 7, 1);
    for (int r = 0; r < run.repetitions; r++) {
        p[r % n].mass += 0.25;
        tick(&run);
        gravity(n, 0.01, p);
        tock(&run);
        observe_real(&run, &p->x, (size_t)n * 7);
    }
    report_real("p", &p->x, (size_t)n * 7);
    return finish(&run);
}
