/* Runs a drawn nest until new code is in place, then the kinds of surroundings that the arguments name:
   PROGRAM KIND:P:Q ... ; a kind with `early` comes to life before the nest is hot.

   Where UNTIL_GONE names a file, each kind acts again and again while it is there.
   Standard output does not depend on time. Standard error tells for each kind whether new code was in place. */
#include "surroundings.h"
#include "../faults/witness.h"
#include <math.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define WARM 12 /* rounds at least */
#define MOST_REPEATED 4000

struct lane lanes[LANES];
char **arguments;
void (*before_round)(void), (*after_round)(void);
int confined;
static int was_effective;

void say(const char *format, ...)
{
    char text[200];
    va_list list;
    va_start(list, format);
    int size = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (write(1, text, (size_t)size) != size)
        _exit(99);
}

void witness_anew(void) { witness_bytes_of(nest_code, nest.size); }

void effective(void) { was_effective = 1; }

double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

unsigned char *mapped(size_t bytes)
{
    unsigned char *start = mmap(0, bytes + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED || mprotect(start + PAGE, bytes, PROT_READ | PROT_WRITE))
        _exit(98);
    return start + PAGE;
}

static uint64_t mix(uint64_t x)
{
    x ^= x >> 31;
    x *= 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    return x ^ x >> 32;
}

static void fill_region(unsigned char *start, size_t bytes, int kind, uint64_t salt, int extreme)
{
    size_t size = kind == 1 ? 8 : (size_t)kind;
    for (size_t at = 0; at + size <= bytes; at += size) {
        uint64_t x = mix(salt + at / size);
        int low = extreme && at >= bytes / 2;
        double value = low ? -1e30 : (double)(int32_t)(x >> 32) / (1 << 29);
        float single = (float)value;
        uint64_t number = low ? 0x8080808080808080u : x;
        memcpy(start + at, kind == 8 ? (void *)&value : kind == 4 ? (void *)&single : (void *)&number, size);
    }
}

void fill(struct lane *lane, int call)
{
    for (int r = 0; r < nest.regions; r++)
        fill_region(lane->region[r], nest.bytes[r], nest.kind[r], lane->salt + (uint64_t)(r * 8 + call),
                    r == nest.extreme);
    lane->control.stop = 0;
    lane->control.progress = NO_PROGRESS;
    lane->control.mark = 0;
    lane->control.rounds = nest.rounds[call];
}

uint64_t contents(const struct lane *lane)
{
    uint64_t h = (uint64_t)lane->control.mark;
    for (int r = 0; r < nest.regions; r++)
        for (size_t at = 0; at < nest.bytes[r]; at += 8) {
            uint64_t x;
            memcpy(&x, lane->region[r] + at, 8);
            h = (h ^ x) * 0x9e3779b97f4a7c15u;
            h ^= h >> 29;
        }
    return h;
}

void result_into(struct lane *lane, long iterations)
{
    uint64_t salt = lane->salt;
    lane->salt = lanes[0].salt;
    fill(lane, 0);
    lane->salt = salt;
    lane->control.rounds = lanes[0].control.rounds;
    lane->control.left = iterations;
    nest.limited(0, lane->region, &lane->control);
}

long wrong_below(const struct lane *lane, const struct lane *result, size_t step)
{
    long wrong = 0, done = 0, value = __atomic_load_n(&lane->control.progress, __ATOMIC_ACQUIRE);
    for (int t = 0; t < nest.iterations; t++)
        if (nest.progress[t] == value)
            done = nest.counts == 2 ? t + 1 : t;
    for (int r = 0; r < nest.regions; r++)
        for (size_t n = 0; n < nest.bytes[r] / nest.element[r]; n += step) {
            size_t at = n * nest.element[r];
            if (nest.last[r][n] > 0 && nest.last[r][n] <= done)
                wrong += memcmp(lane->region[r] + at, result->region[r] + at, nest.element[r]) != 0;
        }
    return wrong;
}

void run_on(struct lane *lane, int call) { nest.run(call, lane->region, &lane->control); }

int wrong_on(struct lane *lane, int call)
{
    fill(lane, call);
    run_on(lane, call);
    return contents(lane) != lane->want[call];
}

int wrong_in_turn(struct lane *lane, long rounds)
{
    int wrong = 0;
    for (long r = 0; r < rounds; r++)
        wrong += wrong_on(lane, r % 3 == 2 ? (int)(r / 3) % CALLS : 0);
    return wrong;
}

static const struct kind *kind_of(const char *word, long *p, long *q)
{
    static const struct kind *const tables[] = {thread_kinds, signal_kinds, memory_kinds,
                                                code_kinds, process_kinds, confined_kinds};
    char name[40] = "";
    *p = *q = 0;
    sscanf(word, "%39[^:]:%ld:%ld", name, p, q);
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const struct kind *k = tables[t]; k->name; k++)
            if (!strcmp(k->name, name))
                return k;
    say("unknown: %s\n", word);
    _exit(97);
}

/* How often the nest is called between two fillings, so that it takes nearly all of the time. */
static long repetitions(void)
{
    double start = cpu_seconds();
    fill(&lanes[0], 0);
    contents(&lanes[0]);
    double between = cpu_seconds() - start;
    run_on(&lanes[0], 0);
    double nest_seconds = cpu_seconds() - start - between;
    double enough = 10 * between / (nest_seconds + 1e-9);
    return enough > MOST_REPEATED ? MOST_REPEATED : enough < 1 ? 1 : (long)enough;
}

static void prepare(void)
{
    if (nest.plugged)
        open_plug_in();
    for (int l = 0; l < LANES; l++) {
        lanes[l].salt = (uint64_t)(nest.seed * 4096 + l * 64);
        for (int r = 0; r < nest.regions; r++)
            lanes[l].region[r] = mapped(nest.bytes[r]);
        for (int call = 0; call < CALLS; call++) {
            fill(&lanes[l], call);
            run_on(&lanes[l], call);
            lanes[l].want[call] = contents(&lanes[l]);
        }
    }
    for (int call = 0; call < CALLS; call++)
        say("call %d: %016lx\n", call, (unsigned long)lanes[0].want[call]);
}

static void told(const char *what, const char *kind, int value)
{
    char text[80];
    int size = snprintf(text, sizeof text, "%s %s %d\n", what, kind, value);
    if (write(2, text, (size_t)size) != size)
        _exit(96);
}

int main(int argc, char **argv)
{
    long p, q, wrong = 0;
    const char *until = getenv("UNTIL_GONE");
    arguments = argv;
    prepare();
    for (int n = 1; n < argc; n++) {
        const struct kind *k = kind_of(argv[n], &p, &q);
        if (k->early)
            k->early(p, q);
    }
    long repeated = repetitions();
    witness_anew();
    for (int round = 0; round < WARM || (!confined && awaited()); round++) {
        if (before_round)
            before_round();
        wrong += wrong_on(&lanes[0], 0);
        for (int n = 0; n < repeated && !(round >= WARM && in_place()); n++) {
            lanes[0].control.rounds = nest.rounds[0] + n % 4; /* a size that changes */
            run_on(&lanes[0], 0);
        }
        if (after_round)
            after_round();
    }
    wrong += wrong_in_turn(&lanes[0], 2 * CALLS);
    say("warm: %ld wrong\n", wrong);
    for (int n = 1; n < argc; n++) {
        const struct kind *k = kind_of(argv[n], &p, &q);
        told("begins", k->name, in_place());
        was_effective = 0;
        wrong = 0;
        do
            wrong += k->act(p, q);
        while (until && access(until, F_OK) == 0);
        say("%s: %ld wrong\n", argv[n], wrong);
        told("acted", k->name, was_effective);
    }
    syscall(confined ? SYS_exit : SYS_exit_group, 0);
    return 0;
}
