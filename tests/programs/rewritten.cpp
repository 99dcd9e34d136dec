// Much of what a rewritten file must leave as it was, in one program: thread-local variables, constructors, indirect
// functions, exceptions through the patched function, .bss, the heap beside it, the program headers that the loader
// names. It prints one line for each; a wrong one is seen by comparing with the original's.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <elf.h>
#include <link.h>
#include <stdexcept>
#include <sys/auxv.h>
#include <unistd.h>

extern "C" { extern char __ehdr_start __attribute__((weak)); }

static thread_local long own = 41;
static thread_local char zeroes[100];
static int constructed;
static char big[300000];
static const char *const words[] = {"one", "two", "three"};

__attribute__((constructor)) static void construct() { constructed = 7; }

#ifndef WITHOUT_IFUNC
static int four() { return 4; }
extern "C" int (*resolve())() { return four; }
extern "C" int chosen() __attribute__((ifunc("resolve")));
#else
static int chosen() { return 4; }
#endif

extern "C" __attribute__((noinline)) long work(const double *a, long n) {
    double sum = 0;
    for (long i = 0; i < n; i++)
        sum += a[i];
    if (sum > 1e6)
        throw std::runtime_error("too much");
    return (long)sum;
}

static int look(struct dl_phdr_info *info, size_t, void *first) {
    if (!*(long *)first)
        *(long *)first = info->dlpi_phnum;
    return 0;
}

int main() {
    double a[64];
    for (int i = 0; i < 64; i++)
        a[i] = i;
    printf("work %ld\n", work(a, 64));
    try {
        a[3] = 1e9;
        work(a, 64);
    } catch (const std::exception &error) {
        printf("caught %s\n", error.what());
    }
    long others = 0;
    for (char c : big)
        others += c != 0;
    for (char c : zeroes)
        others += c != 0;
    own++;
    printf("own %ld, constructed %d, chosen %d, not zero %ld\n", own, constructed, chosen(), others);
    char *heap = (char *)sbrk(4096);
    memset(heap, 1, 4096);
    char *more = (char *)malloc(5000);
    memset(more, 2, 5000);
    printf("heap %d\n", heap[4095] + more[4999] + (memchr(big, 1, sizeof big) != nullptr));
    free(more);
    long count = 0;
    dl_iterate_phdr(look, &count);
    const auto *headers = (const ElfW(Phdr) *)getauxval(AT_PHDR);
    int loads = 0, tls = 0;
    for (unsigned long i = 0; i < getauxval(AT_PHNUM); i++) {
        loads += headers[i].p_type == PT_LOAD;
        tls += headers[i].p_type == PT_TLS;
    }
    printf("headers %d, thread-local segments %d\n", count == (long)getauxval(AT_PHNUM) && loads > 0, tls);
    printf("words %s\n", words[count % 3 * 0 + 2]);
    return 3;
}
