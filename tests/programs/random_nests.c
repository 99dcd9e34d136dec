/* Runs the programs of a batch: nests FIRST LAST traced|native [dump]. Prints one line for each call: a hash
   of all memory the nest may touch, the exception flags it raised, its result. Stops at int3 before each call when
   traced (rdi: program, rsi: call, or -1 behind the last one). */
#define _GNU_SOURCE
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <unistd.h>
#include <xmmintrin.h>

struct program {
    void (*run)(int call, unsigned char **region);
    int seed, calls, regions;
    size_t bytes[6];
    int kind[6];
    void *place[6];
    unsigned fresh;
    int specials;
};

static unsigned flags;
static unsigned char result[16];

static __attribute__((noinline)) void enter(unsigned mxcsr)
{
    __asm__ volatile("ldmxcsr %0" : : "m"(mxcsr));
}

static __attribute__((noinline)) void leave(const void *value, size_t size)
{
    unsigned standard = 0x1f80;
    __asm__ volatile("stmxcsr %0" : "=m"(flags));
    __asm__ volatile("ldmxcsr %0" : : "m"(standard));
    memset(result, 0, sizeof result);
    if (size)
        memcpy(result, value, size);
}

#include "programs.h"

static unsigned char *map(size_t bytes)
{
    unsigned char *start = mmap(0, bytes + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED || mprotect(start + 4096, bytes, PROT_READ | PROT_WRITE))
        abort();
    return start + 4096;
}

static uint64_t mix(uint64_t x)
{
    x ^= x >> 31;
    x *= 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    return x ^ x >> 32;
}

static void fill(unsigned char *start, size_t bytes, int kind, int specials, uint64_t salt)
{
    static const double odd[] = { INFINITY, -0.0, 4.9e-324, -1e-310, 0.0, 1e300 };
    size_t size = kind == 1 ? 8 : (size_t)kind;
    for (size_t at = 0; at + size <= bytes; at += size) {
        uint64_t x = mix(salt + at / size);
        double value = (double)(int32_t)(x >> 32) / (1 << 29);
        int special = specials && x % 97 == 0;
        if (kind == 8) {
            if (special)
                value = odd[x / 97 % 6];
            memcpy(start + at, &value, 8);
            if (specials && x % 97 == 1) {
                uint64_t nan = 0x7ff8000000000000u | x >> 14;
                memcpy(start + at, &nan, 8);
            }
        } else if (kind == 4) {
            float single = special ? (float)odd[x / 97 % 6] : (float)value;
            memcpy(start + at, &single, 4);
            if (specials && x % 97 == 1) {
                uint32_t nan = 0xffc00000u | (uint32_t)(x >> 43);
                memcpy(start + at, &nan, 4);
            }
        } else {
            memcpy(start + at, &x, 8);
        }
    }
}

static uint64_t hash(const unsigned char *start, size_t bytes)
{
    uint64_t h = bytes;
    for (size_t at = 0; at < bytes; at += 8) {
        uint64_t x;
        memcpy(&x, start + at, 8);
        h = (h ^ x) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    return h;
}

static void dump(const struct program *p, int call, unsigned char **region)
{
    for (int r = 0; r < p->regions; r++)
        for (size_t at = 0; at < p->bytes[r]; at += 8) {
            uint64_t x;
            memcpy(&x, region[r] + at, 8);
            printf("%d %d %d %zu %016llx\n", p->seed, call, r, at, (unsigned long long)x);
        }
}

static void stop(int traced, long program, long call)
{
    if (traced)
        __asm__ volatile("int3" : : "D"(program), "S"(call) : "memory");
}

int main(int argc, char **argv)
{
    if (!(personality(0xffffffff) & ADDR_NO_RANDOMIZE)) {
        personality(ADDR_NO_RANDOMIZE);
        execv("/proc/self/exe", argv);
    }
    if (argc < 4)
        return 2;
    int traced = argv[3][0] == 't', held = argv[3][0] == 'h', dumping = argc > 4;
    char byte = 'r';
    setvbuf(stdout, 0, _IOLBF, 0);
    if (traced && (write(2, &byte, 1) != 1 || read(0, &byte, 1) != 1))
        return 2;
    for (int n = atoi(argv[1]); n < atoi(argv[2]); n++) {
        const struct program *p = programs[n];
        unsigned char *region[6];
        for (int r = 0; r < p->regions; r++)
            region[r] = p->place[r] ? p->place[r] : map(p->bytes[r]);
        for (int call = 0; call < p->calls; call++) {
            if (p->fresh >> call & 1)
                for (int r = 0; r < p->regions; r++)
                    fill(region[r], p->bytes[r], p->kind[r], p->specials, (uint64_t)p->seed * 64 + r * 8 + call);
            stop(traced, n, call);
            p->run(call, region);
            uint64_t h = 0;
            for (int r = 0; r < p->regions; r++)
                h = h * 31 + hash(region[r], p->bytes[r]);
            uint64_t words[2];
            memcpy(words, result, 16);
            printf("%d %d %016llx %04x %016llx\n", p->seed, call, (unsigned long long)h, flags & 0xffff,
                   (unsigned long long)words[0]);
            if (dumping)
                dump(p, call, region);
        }
        stop(traced, n, -1);
        for (int r = 0; r < p->regions; r++)
            if (!p->place[r])
                munmap(region[r] - 4096, p->bytes[r] + 8192);
    }
    if (held && (write(2, &byte, 1) != 1 || read(0, &byte, 1) < 0))
        return 2;
    return 0;
}
