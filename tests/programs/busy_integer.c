/* Integer work with nothing to gain: Collatz lengths, a sieve, a hash. usage: program [rounds] */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT 2000000

static unsigned char composite[LIMIT];

static unsigned longest_collatz(unsigned limit)
{
    unsigned best = 0, best_steps = 0;
    for (unsigned start = 1; start < limit; start++) {
        unsigned steps = 0;
        for (uint64_t x = start; x != 1; steps++)
            x = x & 1 ? 3 * x + 1 : x / 2;
        if (steps > best_steps) {
            best_steps = steps;
            best = start;
        }
    }
    return best;
}

static unsigned count_primes(void)
{
    unsigned count = 0;
    memset(composite, 0, sizeof composite);
    for (unsigned p = 2; p < LIMIT; p++) {
        if (composite[p])
            continue;
        count++;
        for (uint64_t m = (uint64_t)p * p; m < LIMIT; m += p)
            composite[m] = 1;
    }
    return count;
}

static uint64_t mix(uint64_t h, unsigned rounds)
{
    for (unsigned i = 0; i < rounds; i++) {
        h ^= h >> 33;
        h *= 0xff51afd7ed558ccdu;
        h = (h << 7 | h >> 57) + composite[h % LIMIT];
    }
    return h;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 4;
    uint64_t h = 1;
    for (int round = 0; round < rounds; round++) {
        unsigned longest = longest_collatz(600000 + (unsigned)round);
        unsigned primes = count_primes();
        h = mix(h + longest + primes, 40000000);
        printf("%u %u %016llx\n", longest, primes, (unsigned long long)h);
    }
    return 0;
}
