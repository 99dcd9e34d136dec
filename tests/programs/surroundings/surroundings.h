/* What surrounds a drawn nest: lanes of data, the nest that is run on them, and the kinds of surroundings.

   A lane is memory of its own for all arrays of the nest, with contents of its own. wrong_on(lane, call) fills it, runs
   the nest and compares with what the original left at the start of the program. A kind does something beside that, and
   gives the number of results that were wrong: 0 whatever the timing. */
#ifndef SURROUNDINGS_H
#define SURROUNDINGS_H
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REGIONS 6
#define CALLS 4
#define LANES 6
#define PAGE 4096
#define NO_PROGRESS (-(1L << 40))

/* What the nest itself may read and store besides its arrays. */
struct control {
    volatile int stop;      /* read by the outermost loop, where the nest is made so */
    volatile long progress; /* stored once for each iteration of it */
    long mark;              /* a constant in the nest's code is added for each iteration */
    long rounds;            /* iterations of the outermost loop, where it is a loop of rounds */
    long left;              /* iterations that the limited copy of the nest may still run */
};

/* One drawn nest, from the generated file. `last`: for each element of a region the outer iteration, from 1, that stores
   to it last in call 0; 0 for one that is only read, -1 for one that nobody touches. */
struct nest {
    long seed;
    int regions;
    size_t bytes[REGIONS];
    int kind[REGIONS]; /* 8: double, 4: float, 1: integers */
    size_t element[REGIONS];
    const short *last[REGIONS];
    int iterations; /* of the outermost loop in call 0 */
    int counts;     /* 0: progress is not stored; 1: at the beginning of an iteration, 2: at its end */
    int stops, marks, plugged;
    const long *progress; /* its value in each iteration */
    long rounds[CALLS];   /* 0: the outermost loop is none of rounds */
    void (*run)(int call, unsigned char **region, struct control *);
    void (*limited)(int call, unsigned char **region, struct control *); /* the same, another function */
    size_t size; /* of the code, in bytes */
    int extreme; /* the upper half of this region is filled with small numbers; -1: none is */
};
extern const struct nest nest;
extern void *nest_code; /* the function that nest.run calls */
extern const char *nest_name;
void open_plug_in(void); /* the first of the two builds */

struct lane {
    unsigned char *region[REGIONS];
    struct control control;
    uint64_t want[CALLS];
    uint64_t salt;
};
extern struct lane lanes[LANES];

void fill(struct lane *, int call);
uint64_t contents(const struct lane *);
void run_on(struct lane *, int call);
int wrong_on(struct lane *, int call);
int wrong_in_turn(struct lane *, long rounds); /* the calls in turn; how many were wrong */
/* The result of lane 0 in call 0 after so many iterations, by the copy of the nest. */
void result_into(struct lane *, long iterations);
long wrong_below(const struct lane *, const struct lane *result, size_t step); /* elements that progress says are done */
unsigned char *mapped(size_t bytes);
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void witness_anew(void); /* nest_code is another, or at another place */
void effective(void); /* the kind has found something to do: new code in place counts from here */
double cpu_seconds(void);

/* A kind of surroundings. `early`: before the nest is hot, gives nothing; `act`: when new code is in place. */
struct kind {
    const char *name;
    void (*early)(long p, long q);
    long (*act)(long p, long q);
};
extern const struct kind thread_kinds[], signal_kinds[], memory_kinds[], code_kinds[], process_kinds[], confined_kinds[];
extern char **arguments; /* of the program */
extern void (*before_round)(void), (*after_round)(void); /* while it is warmed up */
extern int confined; /* by seccomp: no more than write and exit */
#endif
