/* A program that changes its own code while it runs. The first argument names how. value() returns a constant that is in
   the code; what it returned before and after each change is printed.
   mprotect: made writable for a moment, again and again; stays: made writable for good; file: the text is replaced by a
   copy of the file, which is changed then; advice: changed, then dropped, so that the file's contents are there again;
   moved: another page is moved there; child: a child in the same memory does it; handler: a handler does it in the middle
   of the loop; threads: another thread loops in value() meanwhile; forked: a child does it, and its parent does not. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096

__attribute__((noinline, noipa, aligned(PAGE))) static int value(int x)
{
    int constant;
    __asm__ volatile(".globl value_constant\n movl $3, %0\nvalue_constant:" : "=r"(constant));
    return x + constant;
}

__attribute__((noinline, noipa, aligned(PAGE))) static int behind(int x)
{
    return value(x) + 1;
}

extern char value_constant[];
static volatile int stop, seen;

static char *page(void)
{
    return (char *)((uintptr_t)value & ~(uintptr_t)(PAGE - 1));
}

static void protect(int how)
{
    if (mprotect(page(), PAGE, how))
        abort();
}

static void set(int constant)
{
    memcpy(value_constant - 4, &constant, 4);
}

static void change(int constant)
{
    protect(PROT_READ | PROT_WRITE | PROT_EXEC);
    set(constant);
    protect(PROT_READ | PROT_EXEC);
}

static long sum(void)
{
    long total = 0;
    for (int i = 0; i < 1000; i++)
        total += behind(i);
    return total;
}

static int child(void *constant)
{
    change((int)(intptr_t)constant);
    return 0;
}

static void handler(int number)
{
    (void)number;
    change(50);
}

static void *loop(void *argument)
{
    while (!stop)
        seen = value(0);
    return argument;
}

static void wait_for(int constant)
{
    while (seen != constant)
        sched_yield();
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "mprotect";
    printf("%ld\n", sum());
    if (!strcmp(how, "mprotect"))
        for (int constant = 10; constant < 15; constant++) {
            change(constant);
            printf("%ld\n", sum());
        }
    else if (!strcmp(how, "stays"))
        for (int constant = 20; constant < 25; constant++) {
            protect(PROT_READ | PROT_WRITE | PROT_EXEC);
            set(constant);
            printf("%ld\n", sum());
        }
    else if (!strcmp(how, "file")) {
        char *copy = malloc(PAGE);
        int file = memfd_create("text", 0);
        memcpy(copy, page(), PAGE);
        int constant = 30;
        memcpy(copy + (value_constant - 4 - page()), &constant, 4);
        if (write(file, copy, PAGE) != PAGE
            || mmap(page(), PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, file, 0) != page())
            abort();
    } else if (!strcmp(how, "advice")) {
        change(40);
        printf("%ld\n", sum());
        if (madvise(page(), PAGE, MADV_DONTNEED))
            abort();
    } else if (!strcmp(how, "moved")) {
        char *copy = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memcpy(copy, page(), PAGE);
        int constant = 45;
        memcpy(copy + (value_constant - 4 - page()), &constant, 4);
        if (mprotect(copy, PAGE, PROT_READ | PROT_EXEC)
            || mremap(copy, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, page()) != page())
            abort();
    } else if (!strcmp(how, "child")) {
        char *stack = malloc(1 << 16);
        pid_t pid = clone(child, stack + (1 << 16), CLONE_VM | SIGCHLD, (void *)60);
        if (waitpid(pid, 0, 0) != pid)
            abort();
    } else if (!strcmp(how, "handler")) {
        signal(SIGALRM, handler);
        raise(SIGALRM);
        printf("%ld\n", sum());
        change(51);
    } else if (!strcmp(how, "threads")) {
        pthread_t thread;
        pthread_create(&thread, 0, loop, 0);
        wait_for(3);
        for (int constant = 70; constant < 75; constant++) {
            change(constant);
            wait_for(constant);
        }
        stop = 1;
        pthread_join(thread, 0);
    } else if (!strcmp(how, "forked")) {
        fflush(stdout);
        pid_t pid = fork();
        if (!pid) {
            change(80);
            printf("%ld\n", sum());
            fflush(stdout);
            _exit(0);
        }
        if (waitpid(pid, 0, 0) != pid)
            abort();
    }
    printf("%ld\n", sum());
    return 6;
}
