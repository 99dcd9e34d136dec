// Exceptions that are caught in the loop whose call has thrown them, in a part of the function that seldom runs, and in
// a loop that calls that loop. Prints how often what ran.
#include <cstdio>
#include <cstdlib>

__attribute__((noinline)) static int checked(int x)
{
    if (x % 3 == 0)
        throw x;
    return x + 1;
}

__attribute__((noinline)) static long caught(int n)
{
    long sum = 0;
    for (int i = 0; i < n; i++) {
        try {
            sum += checked(i);
        } catch (int e) {
            sum -= e;
        }
    }
    return sum;
}

__attribute__((noinline)) static long passed_on(int n)
{
    long sum = 0;
    for (int i = 0; i < n; i++)
        sum += checked(7 * i + 1);
    return sum;
}

__attribute__((noinline)) static long around(int n)
{
    long sum = 0;
    for (int i = 0; i < n; i++) {
        try {
            sum += passed_on(i);
        } catch (int e) {
            sum += e;
        }
    }
    return sum;
}

__attribute__((noinline, cold)) static int seldom(int x)
{
    return x * 3 + 1;
}

__attribute__((noinline)) static long split(int n)
{
    long sum = 0;
    for (int i = 0; i < n; i++) {
        if (__builtin_expect(i % 5 == 3, 0))
            sum += seldom(i);
        sum ^= i;
    }
    return sum;
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 30;
    printf("%ld %ld %ld\n", caught(n), around(n), split(n));
}
