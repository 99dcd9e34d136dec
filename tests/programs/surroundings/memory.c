/* Memory that changes: pages that the nest passes over are protected, given back or replaced; arrays move. */
#include "surroundings.h"
#include <signal.h>
#include <sys/mman.h>

#define MOST_PAGES 4096

/* Which pages of lane 0 the original reads and stores to in call 0: found out by protecting all of them. */
static unsigned char written[REGIONS][MOST_PAGES], used[REGIONS][MOST_PAGES];
static int wanted; /* PROT_READ: stores are noted; PROT_NONE: all accesses */

static int place_of(char *address, int *page)
{
    for (int r = 0; r < nest.regions; r++) {
        char *start = (char *)lanes[0].region[r];
        if (address >= start && address < start + nest.bytes[r])
            return *page = (int)((address - start) / PAGE), r;
    }
    return -1;
}

static void noted(int s, siginfo_t *info, void *context)
{
    int page, r = place_of(info->si_addr, &page);
    if (r < 0)
        _exit(94);
    (wanted == PROT_READ ? written : used)[r][page] = 1;
    mprotect(lanes[0].region[r] + (size_t)page * PAGE, PAGE, PROT_READ | PROT_WRITE);
}

static void all_protected(int protection)
{
    for (int r = 0; r < nest.regions; r++)
        mprotect(lanes[0].region[r], nest.bytes[r], protection);
}

/* Before the nest is hot, when there is no new code: a handler for this moment only. */
static void look(void)
{
    static int looked;
    if (looked++)
        return;
    struct sigaction act = {.sa_sigaction = noted, .sa_flags = SA_SIGINFO}, before;
    sigaction(SIGSEGV, &act, &before);
    for (int way = 0; way < 2; way++) {
        fill(&lanes[0], 0);
        wanted = way ? PROT_NONE : PROT_READ;
        all_protected(wanted);
        run_on(&lanes[0], 0);
        all_protected(PROT_READ | PROT_WRITE);
    }
    sigaction(SIGSEGV, &before, 0);
}

static void look_early(long p, long q) { look(); }

static long over_pages(unsigned char (*not_in)[MOST_PAGES], int (*act)(unsigned char *page))
{
    long found = 0;
    for (int r = 0; r < nest.regions; r++)
        for (size_t page = 0; page < nest.bytes[r] / PAGE; page++)
            if (!not_in[r][page] && !act(lanes[0].region[r] + page * PAGE))
                found++;
    return found;
}

static int made_read_only(unsigned char *page) { return mprotect(page, PAGE, PROT_READ); }
static int made_writable(unsigned char *page) { return mprotect(page, PAGE, PROT_READ | PROT_WRITE); }
static int made_none(unsigned char *page) { return mprotect(page, PAGE, PROT_NONE); }
static int given_back(unsigned char *page) { return munmap(page, PAGE); }
static int taken_again(unsigned char *page)
{
    return mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED;
}
static int another(unsigned char *page)
{
    return mmap(page, PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED;
}

/* p: what is done with the pages; q: rounds. */
static long passed_over(long p, long q)
{
    int (*const acts[])(unsigned char *) = {made_read_only, made_none, given_back, another};
    long wrong = 0;
    for (long n = 0; n < q; n++) {
        fill(&lanes[0], 0);
        if (over_pages(p ? used : written, acts[p]))
            effective();
        for (int times = 0; times < 2; times++)
            run_on(&lanes[0], 0);
        over_pages(p ? used : written, p < 2 ? made_writable : taken_again);
        wrong += wrong_on(&lanes[0], 0);
    }
    return wrong;
}

/* Arrays that are moved to other addresses, and new ones at the old addresses. */
static long moved(long p, long q)
{
    long wrong = 0;
    effective();
    for (long n = 0; n < q; n++) {
        for (int r = 0; r < nest.regions; r++) {
            unsigned char *to = mapped(nest.bytes[r]), *from = lanes[0].region[r];
            if (mremap(from, nest.bytes[r], nest.bytes[r], MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED)
                return -1;
            lanes[0].region[r] = to;
            if (p) /* something else where it was: read-only */
                wrong += mmap(from, nest.bytes[r], PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != from;
        }
        wrong += wrong_in_turn(&lanes[0], 6);
    }
    return wrong;
}

/* The same addresses, other memory: fresh pages, then pages of a file. */
static long replaced(long p, long q)
{
    long wrong = 0;
    effective();
    for (long n = 0; n < q; n++)
        for (int r = 0; r < nest.regions; r++) {
            int file = -1;
            if (p) {
                char name[] = "/tmp/surroundings-XXXXXX";
                file = mkstemp(name);
                unlink(name);
                if (file < 0 || ftruncate(file, (off_t)nest.bytes[r]))
                    return -1;
            }
            if (mmap(lanes[0].region[r], nest.bytes[r], PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_FIXED | (p ? 0 : MAP_ANONYMOUS), file, 0) == MAP_FAILED)
                return -1;
            if (file >= 0)
                close(file);
            wrong += wrong_in_turn(&lanes[0], 3);
        }
    return wrong;
}

/* The largest reservation that there is room for natively, taken and given back. */
static long reserved(long p, long q)
{
    long wrong = 0;
    effective();
    for (long n = 0; n < q; n++) {
        void *at = mmap(0, 80ul << 40, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        wrong += at == MAP_FAILED;
        wrong += wrong_in_turn(&lanes[0], 3);
        if (at != MAP_FAILED)
            munmap(at, 80ul << 40);
    }
    return wrong;
}

static void many(long p, long q)
{
    for (long n = 0; n < p; n++)
        if (mmap(0, PAGE, n & 1 ? PROT_READ : PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
            _exit(93);
}

static long still_right(long p, long q)
{
    effective();
    return wrong_in_turn(&lanes[0], q);
}

const struct kind memory_kinds[] = {
    {"passed", look_early, passed_over}, {"moved", 0, moved}, {"replaced", 0, replaced}, {"reserved", 0, reserved},
    {"mappings", many, still_right}, {0, 0, 0}};
