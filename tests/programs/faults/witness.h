/* Whether new code is in place: the bytes of a function are not what they were at first.

   A program calls witness(nest) before it is hot, goes on for as many rounds as it likes `or awaited()`, and calls
   acts() where it does what could go wrong. Natively awaited() is 0 at once. Where AWAIT_NEW_CODE tells a number of
   seconds, it is 1 until the nest has been replaced and entered, or for so many seconds. acts() says on standard error
   whether new code is in place at that moment; standard output never depends on it. */
#ifndef WITNESS_H
#define WITNESS_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WITNESSED 1024
#define MORE_ROUNDS 3 /* once new code is in place */
extern char etext;

static const unsigned char *witness_code;
static unsigned char witness_bytes[WITNESSED];
static size_t witness_size;
static int witness_seen;

__attribute__((unused)) static void witness_bytes_of(const void *code, size_t size)
{
    witness_code = code;
    witness_size = size < WITNESSED ? size : WITNESSED;
    memcpy(witness_bytes, code, witness_size);
}

/* For a function of the program itself: the others that stand behind it in memory are witnessed with it. */
__attribute__((unused)) static void witness(const void *function)
{
    witness_bytes_of(function, (size_t)(&etext - (const char *)function));
}

__attribute__((unused)) static int in_place(void)
{
    int now = witness_code && memcmp(witness_code, witness_bytes, witness_size) != 0;
    witness_seen |= now;
    return now;
}

static double witness_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

__attribute__((unused)) static int awaited(void)
{
    static double until;
    static int more = MORE_ROUNDS;
    const char *seconds = getenv("AWAIT_NEW_CODE");
    if (!seconds)
        return 0;
    if (!until)
        until = witness_now() + atof(seconds);
    if (in_place())
        return more-- > 0;
    return witness_now() < until;
}

/* By write(2) in one piece: also from handlers, and where the program may do little else. */
__attribute__((unused)) static void told_in_place(int seen)
{
    static const char yes[] = "new code in place\n", no[] = "no new code in place\n";
    if (write(2, seen ? yes : no, (seen ? sizeof yes : sizeof no) - 1) < 0)
        abort();
}

__attribute__((unused)) static void acts(void) { told_in_place(in_place()); }
#endif
