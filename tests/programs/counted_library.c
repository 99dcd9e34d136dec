/* A function that adds or multiplies, by -DSTEP. */
long work(long n) {
    long value = 1;
    for (long i = 0; i < n % 9; i++)
        value = (value STEP i) % 10007;
    return value;
}
