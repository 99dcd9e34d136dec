// Exceptions that pass frames with destructors, are caught by type, and thrown again.
#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>

#define APART __attribute__((noinline, noipa))

struct Guard {
    long &sum;
    explicit Guard(long &sum) : sum(sum) {}
    ~Guard() { sum += 3; }
};

APART static long work(long n)
{
    volatile long sum = 0;
    for (long i = 0; i < n; i++)
        sum += i;
    return sum;
}

APART static void thrower(long n, long &sum)
{
    Guard guard(sum);
    if (n % 3 == 0)
        throw std::runtime_error("three");
    if (n % 5 == 0)
        throw 5L;
    sum += n;
}

APART static void middle(long n, long &sum)
{
    Guard guard(sum);
    thrower(n, sum);
}

APART static long catcher(long n)
{
    long sum = 0;
    for (long i = 0; i < n; i++) {
        try {
            middle(i, sum);
        } catch (std::exception &) {
            sum += work(50);
        } catch (long number) {
            sum += work(number);
        }
    }
    return sum;
}

APART static long rethrower(long n)
{
    long sum = 0;
    for (long i = 0; i < n; i++) {
        try {
            try {
                middle(3 * i, sum);
            } catch (std::exception &) {
                sum += work(10);
                throw;
            }
        } catch (...) {
            sum += work(20);
        }
    }
    return sum + work(500);
}

int main()
{
    std::map<std::string, long> sums;
    for (int i = 0; i < 50; i++)
        sums["k" + std::to_string(i % 7)] += catcher(5) + rethrower(3);
    long sum = 0;
    for (auto &[name, part] : sums)
        sum += part;
    std::printf("%ld\n", sum);
}
