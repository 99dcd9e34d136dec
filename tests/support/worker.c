/* A program to attach to: it counts in a loop with a known header until SIGUSR1, then says whether all went well.
   usage: worker [timer | thread | sleep | read | shared | many | segv | seccomp | confine | tasks]...
   timer: SIGALRM every millisecond; thread: a second thread that sleeps; sleep, read: sits in nanosleep or read(0)
   after saying ready; shared: every round also writes to shared memory; many: 3000 shared mappings; segv: SIGSEGV is
   caught; seccomp: a filter;
   confine: at SIGUSR2 the program forbids itself calls that it does not make, on pain of death;
   tasks: at SIGUSR2 it switches to another task, which does nothing, and at the next one back. */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum { COUNT = 20000, CELLS = 4096 };

static volatile sig_atomic_t stop, children, alarms;
static unsigned long cells[CELLS], again[CELLS];

static void on_stop(int s) { stop = 1; }
static void on_child(int s) { children++; }
static void on_alarm(int s) { alarms++; }

static void confine(int s)
{
#define KILLED(number) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)), KILLED(SYS_mmap), KILLED(SYS_mprotect),
        KILLED(SYS_munmap), KILLED(SYS_madvise), KILLED(SYS_clone), KILLED(SYS_memfd_create), KILLED(SYS_rt_sigaction),
        KILLED(SYS_getpid), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_wait4, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, __WALL, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static ucontext_t task[2];
static volatile int current;
static void switch_tasks(int s) { int me = current; current = !me; swapcontext(&task[me], &task[!me]); }
static void idle(void) { for (;;); }

static void *nap(void *x) { for (;;) pause(); return x; }

/* Adds 1 to *total, count times. The header is a 5-byte instruction, alone on its page's middle. */
void spin(long count, volatile long *total);
asm(".text\n.p2align 6\n.globl spin\n.type spin, @function\nspin:\n"
    ".globl spin_header\nspin_header:\n movl $1, %eax\n addq %rax, (%rsi)\n decq %rdi\n jnz spin_header\n ret\n"
    ".size spin, .-spin\n");

__attribute__((noinline)) void round_done(void) { asm volatile(""); }

__attribute__((noinline)) static void mix(unsigned long *x, unsigned long salt)
{
    for (int i = 0; i < CELLS; i++)
        x[i] = x[i] * 6364136223846793005UL + salt + i;
}

static int has(int n, char **arguments, const char *word)
{
    for (int i = 1; i < n; i++)
        if (!strcmp(arguments[i], word))
            return 1;
    return 0;
}

int main(int n, char **arguments)
{
    signal(SIGUSR1, on_stop);
    signal(SIGCHLD, on_child);
    signal(SIGALRM, on_alarm);
    if (has(n, arguments, "segv"))
        signal(SIGSEGV, on_child);
    if (has(n, arguments, "seccomp")) {
        struct sock_filter allow[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
        struct sock_fprog program = {1, allow};
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
    }
    if (has(n, arguments, "confine"))
        signal(SIGUSR2, confine);
    static char other_stack[1 << 17] __attribute__((aligned(64)));
    if (has(n, arguments, "tasks")) {
        getcontext(&task[1]);
        task[1].uc_stack.ss_sp = other_stack;
        task[1].uc_stack.ss_size = sizeof other_stack;
        makecontext(&task[1], idle, 0);
        signal(SIGUSR2, switch_tasks);
    }
    volatile long *shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; has(n, arguments, "many") && i < 3000; i++) {
        char *page = mmap(0, 8192, i & 1 ? PROT_READ : PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        munmap(page, 4096);
    }
    pthread_t second;
    if (has(n, arguments, "thread"))
        pthread_create(&second, 0, nap, 0);
    if (has(n, arguments, "timer")) {
        struct itimerval every = {{0, 1000}, {0, 1000}};
        setitimer(ITIMER_REAL, &every, 0);
    }
    int before = dup(0);
    close(before);
    printf("ready\n");
    fflush(stdout);
    if (has(n, arguments, "sleep")) {
        struct timespec left = {0, 300000000};
        printf("slept %d\n", nanosleep(&left, &left));
    }
    if (has(n, arguments, "read")) {
        char byte;
        printf("read %d\n", (int)read(0, &byte, 1));
    }
    volatile long total = 0;
    long rounds = 0;
    while (!stop || (has(n, arguments, "timer") && !alarms)) {
        spin(COUNT, &total);
        mix(cells, rounds);
        if (has(n, arguments, "shared"))
            ++*shared;
        rounds++;
        round_done();
    }
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, 0);
    int right = total == rounds * COUNT;
    for (long r = 0; r < rounds; r++)
        mix(again, r);
    right &= !memcmp(cells, again, sizeof cells);
    right &= !has(n, arguments, "shared") || *shared == rounds;
    right &= !has(n, arguments, "timer") || alarms > 0;
    right &= before == dup(0);
    printf("%s children=%d wait=%d\n", right ? "right" : "WRONG", (int)children, (int)waitpid(-1, 0, WNOHANG));
    return 7;
}
