/* A library is loaded and unloaded many times, two of them in turn, so that both are likely to come to lie at the same
   addresses: program first.so second.so times. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    long sum = 0;
    if (argc < 4)
        return 2;
    for (int i = 0; i < atoi(argv[3]); i++) {
        void *library = dlopen(argv[1 + i % 2], RTLD_NOW);
        if (!library)
            return 3;
        long (*work)(long) = (long (*)(long))dlsym(library, "work");
        sum = 3 * sum + work(i);
        dlclose(library);
    }
    printf("%ld\n", sum);
    return 0;
}
