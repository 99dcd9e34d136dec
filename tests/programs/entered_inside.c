/* A matrix product whose outer loop is entered at its second instruction, once, at the end. usage: program CALLS
   How the way in is found: by a switch; with -DLABELS by a table of addresses; with -DDISTANCES by a table of distances
   from a label. */
#include <stdio.h>
#include <stdlib.h>
#define N 300

__attribute__((noinline)) void product(double *c, const double *a, const double *b, long n, int way, long m)
{
    long left = n;
#if defined LABELS
    static const void *const ways[] = {&&all, &&inside, &&two, &&three, &&four};
    goto *ways[way];
#elif defined DISTANCES
    static const int ways[] = {&&all - &&two, &&inside - &&two, &&two - &&two, &&three - &&two, &&four - &&two};
    goto *(&&two + ways[way]);
#else
    switch (way) {
    case 0: goto all;
    case 1: goto inside;
    case 2: goto two;
    case 3: goto three;
    case 4: goto four;
    case 5: a += 2; goto all;
    default: return;
    }
#endif
two:
    a += 1;
    goto all;
three:
    b += 1;
    goto all;
four:
    c += 1;
all:
    do {
        m = n;
inside:;
        long j = 0;
        do {
            double s = 0;
            const double *p = a, *q = b + j;
            long k = m;
            do {
                s += *p * *q;
                p++;
                q += N;
            } while (--k);
            c[j] = s;
        } while (++j < n);
        c += N;
        a += N;
    } while (--left);
}

int main(int argc, char **argv)
{
    int calls = argc > 1 ? atoi(argv[1]) : 100;
    double *a = malloc(N * N * 8 + 64), *b = malloc(N * N * 8 + 64), *c = malloc(N * N * 8 + 64);
    for (int i = 0; i < N * N; i++)
        a[i] = i % 1013, b[i] = i % 997;
    for (int call = 0; call < calls; call++)
        product(c, a, b, N, 0, 0);
    product(c, a, b, N, 1, 17);
    double sum = 0;
    for (int i = 0; i < N * N; i++)
        sum += c[i] * (i % 7);
    printf("%a\n", sum);
    return 0;
}
