/* Timers and handlers: they count, enter the nest, look at its progress, stop it, leave it, fork in it, switch stacks. */
#include "surroundings.h"
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>

#define FLAG_STACK 1   /* on an alternate stack */
#define FLAG_NESTED 2  /* SA_NODEFER, and a second timer */
#define FLAG_PROFILE 4 /* SIGPROF instead of SIGALRM */

static volatile long ticks, wrong_inside, depth;
static sigjmp_buf out;

/* A handler may take longer than its period: the timer is set anew when it has ended. */
static volatile long period;
static void (*of_ticks)(int);

static void set_anew(int s)
{
    struct itimerval t = {{0, 0}, {0, period}};
    setitimer(s == SIGPROF ? ITIMER_PROF : ITIMER_REAL, &t, 0);
}

static void ticked(int s)
{
    of_ticks(s);
    set_anew(s);
}

static void every(long flags, long microseconds, void (*handler)(int))
{
    of_ticks = handler;
    period = microseconds;
    static char stack[1 << 17] __attribute__((aligned(64)));
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction act = {.sa_handler = ticked,
                            .sa_flags = SA_RESTART | (flags & FLAG_STACK && !(flags & FLAG_NESTED) ? SA_ONSTACK : 0) |
                                        (flags & FLAG_NESTED ? SA_NODEFER : 0)};
    sigaltstack(&alternate, 0);
    sigaction(SIGALRM, &act, 0);
    sigaction(SIGPROF, &act, 0);
    set_anew(flags & FLAG_PROFILE ? SIGPROF : SIGALRM);
    if (flags & FLAG_NESTED)
        set_anew(flags & FLAG_PROFILE ? SIGALRM : SIGPROF);
}

static void no_more(void)
{
    period = 0;
    struct itimerval t = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &t, 0);
    setitimer(ITIMER_PROF, &t, 0);
    signal(SIGALRM, SIG_IGN);
    signal(SIGPROF, SIG_IGN);
}

static long for_a_while(double seconds)
{
    long wrong = 0;
    for (double end = cpu_seconds() + seconds; cpu_seconds() < end;)
        wrong += wrong_in_turn(&lanes[0], 12);
    return wrong;
}

static void count(int s) { ticks++; }

static long counted(long p, long q)
{
    effective();
    every(p, q, count);
    long wrong = for_a_while(0.15);
    no_more();
    return wrong;
}

/* Ticking from before the nest is hot. */
static void tick(long p, long q) { every(p, q, count); }

static long ticking(long p, long q)
{
    effective();
    long wrong = for_a_while(0.1);
    no_more();
    return wrong;
}

static void enter(int s)
{
    if (depth >= LANES - 1)
        return;
    depth++;
    wrong_inside += wrong_on(&lanes[depth], (int)(ticks++ % CALLS));
    depth--;
}

static long entered(long p, long q)
{
    effective();
    wrong_inside = depth = 0;
    every(p, q, enter);
    long wrong = for_a_while(0.2);
    no_more();
    return wrong + wrong_inside;
}

static volatile int inside;
static long step;

static void look(int s)
{
    if (inside)
        wrong_inside += wrong_below(&lanes[0], &lanes[1], (size_t)step);
}

static long looked_at(long p, long q)
{
    long wrong = 0;
    if (!nest.counts)
        return 0;
    effective();
    step = 7;
    wrong_inside = 0;
    result_into(&lanes[1], 1L << 40);
    every(p, q, look);
    for (double end = cpu_seconds() + 0.2; cpu_seconds() < end;) {
        fill(&lanes[0], 0);
        inside = 1;
        run_on(&lanes[0], 0);
        inside = 0;
        wrong += contents(&lanes[0]) != lanes[0].want[0];
    }
    no_more();
    return wrong + wrong_inside;
}

static long iterations_done(long progress)
{
    if (progress == NO_PROGRESS || nest.rounds[0])
        return progress == NO_PROGRESS ? 0 : progress + 1;
    for (int t = 0; t < nest.iterations; t++)
        if (nest.progress[t] == progress)
            return t + 1;
    return -1;
}

static void stop(int s) { lanes[0].control.stop = 1; }

/* After the stop the nest is left at once: some iterations are done, and no other. A loop of rounds would never end. */
static long stopped(long p, long q)
{
    long wrong = 0;
    struct itimerval once = {{0, 0}, {0, 0}};
    if (!nest.stops)
        return 0;
    effective();
    signal(SIGALRM, stop);
    for (long n = 0; n < q; n++) {
        fill(&lanes[0], 0);
        lanes[0].control.rounds = 1L << 40;
        once.it_value.tv_usec = 50 + (p * n) % 3000;
        setitimer(ITIMER_REAL, &once, 0);
        run_on(&lanes[0], 0);
        no_more();
        signal(SIGALRM, stop);
        if (!nest.counts)
            continue;
        result_into(&lanes[1], iterations_done(lanes[0].control.progress));
        lanes[1].control.mark = lanes[0].control.mark;
        wrong += contents(&lanes[0]) != contents(&lanes[1]);
    }
    return wrong + wrong_in_turn(&lanes[0], 3);
}

static void leave(int s) { siglongjmp(out, 1); }

static long left(long p, long q)
{
    volatile long wrong = 0;
    struct itimerval once = {{0, 0}, {0, 0}};
    effective();
    for (volatile long n = 0; n < q; n++) {
        signal(SIGALRM, leave);
        once.it_value.tv_usec = 30 + (p * n) % 2000;
        if (!sigsetjmp(out, 1)) {
            setitimer(ITIMER_REAL, &once, 0);
            for (;;)
                run_on(&lanes[1], 0);
        }
        wrong += wrong_in_turn(&lanes[0], 3) + wrong_on(&lanes[1], 0);
    }
    return wrong;
}

/* The handler forks: both processes return into the middle of the nest. */
static volatile int is_child, forks;

static void split(int s)
{
    if (forks-- > 0 && !is_child) {
        pid_t child = fork();
        if (child == 0)
            is_child = 1;
    }
}

static long split_inside(long p, long q)
{
    long wrong = 0;
    int status;
    effective();
    for (long n = 0; n < q; n++) {
        forks = 1;
        signal(SIGALRM, split);
        struct itimerval once = {{0, 0}, {0, 20 + (p * n) % 1500}};
        setitimer(ITIMER_REAL, &once, 0);
        for (int r = 0; r < 20 && (r < 3 || forks > 0) && !is_child; r++)
            wrong += wrong_on(&lanes[0], 0);
        if (is_child)
            _exit(wrong || wrong_in_turn(&lanes[0], 3) ? 1 : 0);
        no_more();
        while (waitpid(-1, &status, 0) > 0)
            wrong += status != 0;
    }
    return wrong;
}

/* Two tasks that a timer switches between, as preemptive user-level threads do. */
static ucontext_t task[2];
static volatile int running;
static volatile long rounds_of_other;

static void change(int s)
{
    int me = running;
    running = !me;
    set_anew(s);
    swapcontext(&task[me], &task[!me]);
}

static void other(void)
{
    for (;;) {
        wrong_inside += wrong_on(&lanes[1], (int)(rounds_of_other % CALLS));
        rounds_of_other++;
    }
}

static long switched(long p, long q)
{
    static char stack[1 << 18] __attribute__((aligned(64)));
    long wrong;
    effective();
    wrong_inside = running = 0;
    getcontext(&task[1]);
    task[1].uc_stack.ss_sp = stack;
    task[1].uc_stack.ss_size = sizeof stack;
    sigemptyset(&task[1].uc_sigmask);
    makecontext(&task[1], other, 0);
    every(0, q, change);
    wrong = for_a_while(0.3);
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, 0); /* the other task stays where it is, for good */
    no_more();
    sigprocmask(SIG_UNBLOCK, &all, 0);
    return wrong + wrong_inside + wrong_in_turn(&lanes[0], 3);
}

/* Another process stops this one and lets it go on. */
static long halted(long p, long q)
{
    int status;
    effective();
    pid_t parent = getpid(), child = fork();
    if (!child) {
        for (long n = 0; n < q; n++) {
            usleep((useconds_t)p);
            kill(parent, SIGSTOP);
            usleep((useconds_t)(p / 2));
            kill(parent, SIGCONT);
        }
        _exit(0);
    }
    long wrong = 0;
    while (waitpid(child, &status, WNOHANG) == 0)
        wrong += wrong_in_turn(&lanes[0], 12);
    return wrong;
}

const struct kind signal_kinds[] = {
    {"counter", 0, counted}, {"ticking", tick, ticking}, {"entering", 0, entered}, {"looking", 0, looked_at},
    {"stopping", 0, stopped}, {"leaving", 0, left}, {"splitting", 0, split_inside}, {"switching", 0, switched},
    {"halting", 0, halted}, {0, 0, 0}};
