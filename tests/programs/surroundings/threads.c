/* Threads: they run the nest on lanes of their own, or keep cells that it does not touch. */
#include "surroundings.h"
#include <pthread.h>

struct task {
    struct lane *lane;
    long rounds, wrong, delay;
};

static void *computing(void *given)
{
    struct task *task = given;
    if (task->delay)
        usleep((useconds_t)task->delay);
    task->wrong = wrong_in_turn(task->lane, task->rounds);
    return 0;
}

/* p threads beside the main one, q rounds each. */
static long together(long p, long q)
{
    struct task task[LANES] = {{0}};
    pthread_t id[LANES];
    long wrong = 0;
    effective();
    for (int t = 1; t <= p; t++) {
        task[t] = (struct task){&lanes[t], q, 0, 0};
        if (pthread_create(&id[t], 0, computing, &task[t]))
            return -1;
    }
    wrong += wrong_in_turn(&lanes[0], q);
    for (int t = 1; t <= p; t++) {
        pthread_join(id[t], 0);
        wrong += task[t].wrong;
    }
    return wrong;
}

/* Threads that come while others are inside, and go: q times, every p microseconds one. */
static long coming_and_going(long p, long q)
{
    struct task task[LANES] = {{0}};
    pthread_t id[LANES];
    long wrong = 0;
    effective();
    for (long n = 0; n < q; n++) {
        int t = 1 + (int)(n % (LANES - 1));
        if (n >= LANES - 1) {
            pthread_join(id[t], 0);
            wrong += task[t].wrong;
        }
        task[t] = (struct task){&lanes[t], 3, 0, 0};
        if (pthread_create(&id[t], 0, computing, &task[t]))
            return -1;
        if (n % 3 == 0)
            wrong += wrong_on(&lanes[0], 0);
        usleep((useconds_t)p);
    }
    for (long n = q < LANES - 1 ? 0 : q - (LANES - 1); n < q; n++) {
        int t = 1 + (int)(n % (LANES - 1));
        pthread_join(id[t], 0);
        wrong += task[t].wrong;
    }
    return wrong;
}

/* A thread of its own counts in all elements that nobody else touches, in the same arrays that the nest works on. */
static volatile int over;

static void *counting(void *given)
{
    long rounds = 0;
    while (!over) {
        for (int r = 0; r < nest.regions; r++)
            for (size_t n = 0; n < nest.bytes[r] / nest.element[r]; n++)
                if (nest.last[r][n] == -1)
                    ++*(volatile unsigned char *)(lanes[0].region[r] + n * nest.element[r]);
        rounds++;
    }
    *(long *)given = rounds;
    return 0;
}

static long neighbours(long p, long q)
{
    pthread_t id;
    long rounds = 0, wrong = 0, cells = 0;
    fill(&lanes[0], 0);
    for (int r = 0; r < nest.regions; r++)
        for (size_t n = 0; n < nest.bytes[r] / nest.element[r]; n++)
            if (nest.last[r][n] == -1)
                lanes[0].region[r][n * nest.element[r]] = 0, cells++;
    if (cells)
        effective();
    over = 0;
    if (pthread_create(&id, 0, counting, &rounds))
        return -1;
    for (long n = 0; n < q; n++)
        run_on(&lanes[0], 0);
    over = 1;
    pthread_join(id, 0);
    for (int r = 0; r < nest.regions; r++)
        for (size_t n = 0; n < nest.bytes[r] / nest.element[r]; n++)
            if (nest.last[r][n] == -1)
                wrong += lanes[0].region[r][n * nest.element[r]] != (unsigned char)rounds;
    return wrong + wrong_on(&lanes[0], 0);
}

/* A thread takes what the progress counter says is done, while the main one computes. The lock is held while the thread
   looks, and while the arrays are filled anew: never while the nest runs. */
static pthread_mutex_t looking = PTHREAD_MUTEX_INITIALIZER;
static int begun;

static void *taking(void *given)
{
    long wrong = 0;
    while (!over) {
        pthread_mutex_lock(&looking);
        if (begun)
            wrong += wrong_below(&lanes[0], &lanes[1], 1);
        pthread_mutex_unlock(&looking);
        usleep(20); /* the main thread comes to its turn */
    }
    *(long *)given = wrong;
    return 0;
}

static long taken(long p, long q)
{
    pthread_t id;
    long wrong = 0, computed = 0;
    if (!nest.counts)
        return 0;
    effective();
    result_into(&lanes[1], 1L << 40);
    over = begun = 0;
    if (pthread_create(&id, 0, taking, &wrong))
        return -1;
    for (long n = 0; n < q; n++) {
        pthread_mutex_lock(&looking);
        fill(&lanes[0], 0);
        begun = 1;
        pthread_mutex_unlock(&looking);
        run_on(&lanes[0], 0);
        pthread_mutex_lock(&looking);
        begun = 0;
        pthread_mutex_unlock(&looking);
        computed += contents(&lanes[0]) != lanes[0].want[0];
    }
    over = 1;
    pthread_join(id, 0);
    return wrong + computed;
}

/* A thread that sleeps from before the nest is hot; later it computes as well. */
static pthread_t sleeper;
static struct task asleep;
static int pipe_to_sleeper[2];

static void *sleeping(void *given)
{
    char byte;
    if (read(pipe_to_sleeper[0], &byte, 1) == 1)
        computing(given);
    return 0;
}

static void fall_asleep(long p, long q)
{
    asleep = (struct task){&lanes[1], q, 0, 0};
    if (pipe(pipe_to_sleeper) || pthread_create(&sleeper, 0, sleeping, &asleep))
        _exit(95);
}

static long awake(long p, long q)
{
    effective();
    if (write(pipe_to_sleeper[1], "w", 1) != 1)
        return -1;
    long wrong = wrong_in_turn(&lanes[0], q);
    pthread_join(sleeper, 0);
    return wrong + asleep.wrong;
}

/* Threads that are cancelled in the middle of the nest. */
static void *endless(void *given)
{
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, 0);
    for (;;)
        run_on(given, 0);
}

static long cancelled(long p, long q)
{
    pthread_t id;
    long wrong = 0;
    effective();
    for (long n = 0; n < q; n++) {
        if (pthread_create(&id, 0, endless, &lanes[1]))
            return -1;
        usleep((useconds_t)(p + 37 * n));
        wrong += wrong_on(&lanes[0], 0);
        pthread_cancel(id);
        pthread_join(id, 0);
        wrong += wrong_in_turn(&lanes[0], 3);
    }
    return wrong;
}

const struct kind thread_kinds[] = {
    {"threads", 0, together}, {"staggered", 0, coming_and_going}, {"neighbours", 0, neighbours}, {"taker", 0, taken},
    {"sleeper", fall_asleep, awake}, {"cancelled", 0, cancelled}, {0, 0, 0}};
