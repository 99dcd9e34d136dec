/* Matrix products on the same data, over and over, until SIGUSR1 comes. At SIGUSR2 the product that is under way is
   interrupted. Prints the last product and how many complete ones differed from the first. usage: program n MODE
     leave      the handler leaves it by siglongjmp, for good
     deeper     the same, and later products are called with the stack pointer elsewhere
     altstack   the same as leave, from a handler on a stack of its own
     suspend    the handler switches to another task, which makes products of its own, until SIGHUP comes
     large      the handler has a frame of 200 KB, and goes on until SIGHUP comes
     nested     the handler makes a product itself, then goes on until SIGHUP comes
     handle     the program sets a handler for SIGSEGV; it never comes
     confine    the program forbids itself, on pain of death, calls that it does not make itself */
#define _GNU_SOURCE
#include <alloca.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "matrix.h"

#define LONGEST_SECONDS 280
#define DEPTHS 7

static volatile sig_atomic_t told, resumed;
static const char *mode;
static sigjmp_buf back;
static ucontext_t first_task, other_task;
static int n;
static REAL *a, *b, *own;

static void on_word(int number)
{
    (void)number;
    told = 1;
}

static void on_resume(int number)
{
    (void)number;
    resumed = 1;
}

void dgemm(int n, REAL *a, REAL *b, REAL *c)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            for (int k = 0; k < n; k++)
                c[i * n + j] += a[i * n + k] * b[k * n + j];
}

static void other(void)
{
    for (;;) {
        fill(own, (size_t)n * n, 5);
        dgemm(n, a, b, own);
        if (resumed)
            swapcontext(&other_task, &first_task);
    }
}

static void confine(void)
{
#define KILLED(number) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)), KILLED(SYS_mmap), KILLED(SYS_mprotect),
        KILLED(SYS_munmap), KILLED(SYS_madvise), KILLED(SYS_clone), KILLED(SYS_memfd_create), KILLED(SYS_wait4),
        KILLED(SYS_rt_sigaction), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        _exit(9);
}

static void go_on(void)
{
    while (!resumed)
        ;
}

static void large(void)
{
    volatile char frame[200000];
    frame[0] = frame[sizeof frame - 1] = 1;
    go_on();
}

static void on_interruption(int number)
{
    (void)number;
    resumed = 0;
    switch (*mode) {
    case 's':
        swapcontext(&first_task, &other_task);
        break;
    case 'n':
        fill(own, (size_t)n * n, 5);
        dgemm(n, a, b, own);
        go_on();
        break;
    case 'h':
        signal(SIGSEGV, on_resume);
        break;
    case 'c':
        confine();
        break;
    default:
        if (!strcmp(mode, "large"))
            large();
        else
            siglongjmp(back, 1);
    }
}

static void product(REAL *c, int depth)
{
    volatile char *room = alloca(64 + 256 * (size_t)depth);
    room[0] = 1;
    dgemm(n, a, b, c);
    room[1] = 1;
}

int main(int argc, char **argv)
{
    static char task_stack[1 << 17] __attribute__((aligned(64))), signal_stack[1 << 16];
    n = parse_size(argc > 1 ? argv[1] : "512");
    mode = argc > 2 ? argv[2] : "leave";
    size_t count = (size_t)n * n;
    a = allocate(count), b = allocate(count), own = allocate(count);
    REAL *c = allocate(count);
    fill(a, count, 1);
    fill(b, count, 2);
    stack_t elsewhere = {.ss_sp = signal_stack, .ss_size = sizeof signal_stack};
    struct sigaction interrupt = {.sa_handler = on_interruption, .sa_flags = *mode == 'a' ? SA_ONSTACK : 0};
    if (sigaltstack(&elsewhere, 0) || getcontext(&other_task))
        return 2;
    other_task.uc_stack.ss_sp = task_stack;
    other_task.uc_stack.ss_size = sizeof task_stack;
    makecontext(&other_task, other, 0);
    signal(SIGUSR1, on_word);
    signal(SIGHUP, on_resume);
    volatile uint64_t first = 0, different = 0;
    volatile int calls = 0;
    alarm(LONGEST_SECONDS);
    sigsetjmp(back, 1);
    if (!calls) {
        sigaction(SIGUSR2, &interrupt, 0);
        fprintf(stderr, "ready %d\n", (int)getpid());
    }
    while (calls < 2 || !told) {
        fill(c, count, 3);
        product(c, *mode == 'd' ? calls % DEPTHS : 0);
        uint64_t result = hash(HASH_START, c, count);
        if (!calls)
            first = result;
        different += result != first;
        calls++;
    }
    print_matrix(c, n, 0);
    printf("different %llu\n", (unsigned long long)different);
    return 3;
}
