/* Code that changes: plug-ins that are exchanged, text that is patched, code that was loaded by hand into memory without a
   file behind it. The two plug-ins, 0.so and 1.so beside the program, differ in where the outermost loop begins. */
#include "surroundings.h"
#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <time.h>

#ifdef STATIC
void open_plug_in(void) { _exit(92); }
static long exchanged(long p, long q) { return p * q * 0; }
static void exchange_early(long p, long q) {}
#else
static uint64_t want[2][CALLS]; /* on lane 0, by each plug-in */
static int current;
static void *library;
static unsigned char *by_hand; /* where the segments are copied to */
#define BY_HAND (1 << 20)

static const char *path_of(int which)
{
    static char path[500];
    const char *slash = strrchr(arguments[0], '/');
    snprintf(path, sizeof path, "%.*s/%d.so", slash ? (int)(slash - arguments[0]) : 1, slash ? arguments[0] : ".", which);
    return path;
}

/* The segments of a file, copied to anonymous memory that is never writable and executable at the same time. Where another
   file was copied before, only the bytes that differ are written. */
static void copy_segments(const char *path)
{
    static unsigned char bytes[BY_HAND], image[BY_HAND];
    FILE *file = fopen(path, "rb");
    size_t size = file ? fread(bytes, 1, sizeof bytes, file) : 0;
    Elf64_Ehdr *head = (void *)bytes;
    Elf64_Phdr *segment = (void *)(bytes + head->e_phoff);
    if (!size || fclose(file))
        _exit(91);
    if (by_hand)
        mprotect(by_hand, BY_HAND, PROT_READ | PROT_WRITE);
    else
        by_hand = mmap(0, BY_HAND, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int n = 0; n < head->e_phnum; n++)
        if (segment[n].p_type == PT_LOAD)
            for (size_t at = 0; at < segment[n].p_filesz; at++) {
                size_t to = segment[n].p_vaddr + at;
                if (image[to] != bytes[segment[n].p_offset + at])
                    by_hand[to] = image[to] = bytes[segment[n].p_offset + at];
            }
    for (int n = 0; n < head->e_phnum; n++)
        if (segment[n].p_type == PT_LOAD && segment[n].p_flags & PF_X)
            mprotect(by_hand + (segment[n].p_vaddr & -PAGE), (segment[n].p_memsz + PAGE - 1) & -PAGE, PROT_READ | PROT_EXEC);
}

static void opened(int which)
{
    if (library)
        dlclose(library);
    library = dlopen(path_of(which), RTLD_NOW);
    if (!library)
        _exit(90);
    nest_code = dlsym(library, nest_name);
    if (nest.plugged == 2) {
        Dl_info info;
        dladdr(nest_code, &info);
        copy_segments(path_of(which));
        nest_code = by_hand + ((unsigned char *)nest_code - (unsigned char *)info.dli_fbase);
    }
    current = which;
    witness_anew();
}

void open_plug_in(void)
{
    unsigned char *region[REGIONS];
    lanes[0].salt = (uint64_t)(nest.seed * 4096);
    for (int r = 0; r < nest.regions; r++)
        region[r] = lanes[0].region[r] = mapped(nest.bytes[r]);
    for (int which = 1; which >= 0; which--) {
        opened(which);
        for (int call = 0; call < CALLS; call++) {
            fill(&lanes[0], call);
            run_on(&lanes[0], call);
            want[which][call] = contents(&lanes[0]);
        }
    }
    for (int r = 0; r < nest.regions; r++)
        munmap(region[r], nest.bytes[r]);
}

/* For q milliseconds they are exchanged each round, while memopt may be at work. */
static struct timespec start;
static long until_ms;

static void exchange_again(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 < until_ms)
        opened(!current);
    else if (current)
        opened(0);
    memcpy(lanes[0].want, want[current], sizeof want[current]);
}

static void exchange_early(long p, long q)
{
    if (!nest.plugged)
        return;
    clock_gettime(CLOCK_MONOTONIC, &start);
    until_ms = q;
    before_round = exchange_again;
}

/* Exchanged q times (an even number), with p rounds for each. */
static long exchanged(long p, long q)
{
    long wrong = 0;
    if (!nest.plugged)
        return 0;
    effective();
    if (current)
        opened(0);
    memcpy(lanes[0].want, want[0], sizeof want[0]);
    for (long n = 0; n < q; n++) {
        opened(!current);
        for (long r = 0; r < p; r++) {
            int call = r % 3 == 2 ? (int)(r / 3) % CALLS : 0;
            fill(&lanes[0], call);
            run_on(&lanes[0], call);
            wrong += contents(&lanes[0]) != want[current][call];
        }
    }
    return wrong;
}
#endif

/* A constant in the nest's text becomes another one, and what it was. The text is writable for that moment only. */
extern unsigned char *__start_patch_sites[] __attribute__((weak)), *__stop_patch_sites[] __attribute__((weak));

static void write_constant(int value)
{
    for (unsigned char **site = __start_patch_sites; site < __stop_patch_sites; site++) {
        unsigned char *page = (unsigned char *)((uintptr_t)*site & -(uintptr_t)PAGE);
        if (mprotect(page, 2 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC))
            _exit(89);
        memcpy(*site, &value, 4);
        if (mprotect(page, 2 * PAGE, PROT_READ | PROT_EXEC))
            _exit(88);
    }
}

static long patched(long p, long q)
{
    long wrong = 0;
    if (!nest.marks || &__start_patch_sites[0] == &__stop_patch_sites[0])
        return 0;
    effective();
    for (long n = 0; n < q; n++) {
        int value = n % 2 ? nest.marks : (int)(p + n);
        write_constant(value);
        for (int times = 0; times < 3; times++) {
            fill(&lanes[0], 0);
            run_on(&lanes[0], 0);
            wrong += lanes[0].control.mark != (long)value * nest.iterations;
            lanes[0].control.mark = (long)nest.marks * nest.iterations;
            wrong += contents(&lanes[0]) != lanes[0].want[0];
        }
    }
    write_constant(nest.marks);
    return wrong + wrong_in_turn(&lanes[0], 3);
}

#ifndef STATIC
static long exchanged_before(long p, long q) { return exchanged(p, 4); }
#else
static long exchanged_before(long p, long q) { return 0; }
#endif

const struct kind code_kinds[] = {{"exchanged", 0, exchanged}, {"exchanging", exchange_early, exchanged_before}, {"patched", 0, patched}, {0, 0, 0}};
