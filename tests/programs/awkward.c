/* Calls a kernel of assembly, c += a * b in one awkward way or another, on proper arrays until the time is up, then on
   sizes, pointers and register contents for which a version must stand aside. usage: awkward n calls */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t seen[16]; /* registers after the nest */
void kernel(long n, double *a, double *b, double *c, long *size);

static double *all, *saved;
static size_t count;

static void call(const char *what, long n, double *a, double *b, double *c, long *size)
{
    kernel(n, a, b, c, size);
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < count; i++) {
        uint64_t word;
        memcpy(&word, &all[i], 8);
        hash = (hash ^ word) * 1099511628211u;
    }
    printf("%s %016llx", what, (unsigned long long)hash);
    for (int i = 0; i < 16; i++)
        printf(" %llx", (unsigned long long)seen[i]);
    printf("\n");
}

static void call_afresh(const char *what, long n, double *a, double *b, double *c, long *size)
{
    memcpy(all, saved, count * 8);
    call(what, n, a, b, c, size);
}

int main(int argc, char **argv)
{
    long n = argc > 1 ? atol(argv[1]) : 400, calls = argc > 2 ? atol(argv[2]) : 1, size[2] = {n, n};
    count = (size_t)n * n * 4 + 256;
    all = calloc(count, 8);
    saved = calloc(count, 8);
    uint64_t state = 1;
    for (size_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        saved[i] = (double)(state >> 11) * 0x1p-53 - 0.5;
    }
    double *a = all + 128, *b = a + n * n, *c = b + n * n;
    memcpy(all, saved, count * 8);
    for (long i = 0; i < calls; i++)
        call("plain", n, a, b, c, size);
    call_afresh("garbage", n | (long)0xdeadbeef00000000, a, b, c, size);
    for (long less = 0; less < 4; less++) {
        size[0] = size[1] = less;
        call_afresh("small", less, a, b, c, size);
    }
    size[0] = size[1] = n - 1;
    call_afresh("smaller", n - 1, a, b, c, size);
    size[0] = size[1] = n;
    call_afresh("c is a", n, a, b, a, size);
    call_afresh("c is b", n, a, b, b, size);
    call_afresh("c over a", n, a, b, a + 1, size);
    call_afresh("c behind b", n, a, b, b + n * n - 1, size);
    call_afresh("c unaligned", n, a, b, (double *)((char *)c + 4), size);
    call_afresh("swapped", n, c, b, a, size);
    call_afresh("nothing", n, a, b, c, 0);
    return 0;
}
