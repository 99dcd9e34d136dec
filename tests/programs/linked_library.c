/* Functions that call each other by stubs, because another file may define them anew. */
long leaf(long n)
{
    volatile long sum = 0;
    for (long i = 0; i < n; i++)
        sum += i;
    return sum;
}

long twice(long n)
{
    return leaf(n) + leaf(n + 1);
}

long last(long n) /* a tail call */
{
    return leaf(2 * n);
}

__attribute__((noipa)) long down(long n) /* calls itself */
{
    return (n ? down(n - 1) : leaf(3)) ^ n;
}
