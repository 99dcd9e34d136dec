/* Programs that confine themselves: seccomp, the time-stamp counter, limits. Seccomp comes last: nothing but write and
   exit is allowed then. */
#include "surroundings.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>

static void confine(int strict)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    confined = 1;
    if (strict ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0) :
                 prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        _exit(84);
}

static long confined_now(long p, long q)
{
    effective();
    confine((int)p);
    return wrong_in_turn(&lanes[0], q);
}

/* q milliseconds after the start, while memopt may be at work. */
static struct timespec start;
static long after_ms, strictly;

static void at_its_time(void)
{
    struct timespec now;
    if (confined)
        return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 >= after_ms)
        confine((int)strictly);
}

static void confine_later(long p, long q)
{
    clock_gettime(CLOCK_MONOTONIC, &start);
    after_ms = q;
    strictly = p;
    before_round = at_its_time;
}

static long confined_already(long p, long q)
{
    effective();
    if (!confined)
        confine((int)p);
    return wrong_in_turn(&lanes[0], 200);
}

static long without_time_stamps(long p, long q)
{
    effective();
    prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
    long wrong = wrong_in_turn(&lanes[0], q);
    prctl(PR_SET_TSC, PR_TSC_ENABLE);
    return wrong;
}

static long pages_now(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld", &pages) != 1)
        _exit(83);
    fclose(file);
    return pages;
}

static const int resources[] = {RLIMIT_AS, RLIMIT_NOFILE, RLIMIT_NPROC, RLIMIT_DATA, RLIMIT_STACK, RLIMIT_MEMLOCK};

static void lower(long p)
{
    struct rlimit limit;
    rlim_t least[] = {(rlim_t)(pages_now() + 64) * PAGE, 3, 1, 1 << 20, 1 << 17, 0};
    getrlimit(resources[p], &limit);
    if (least[p] < limit.rlim_cur)
        limit.rlim_cur = least[p];
    if (setrlimit(resources[p], &limit))
        _exit(82);
}

static long under_limits(long p, long q)
{
    struct rlimit before;
    getrlimit(resources[p], &before);
    effective();
    lower(p);
    long wrong = wrong_in_turn(&lanes[0], q);
    setrlimit(resources[p], &before);
    return wrong;
}

static void limited_early(long p, long q) { lower(p); }

static long limited(long p, long q)
{
    effective();
    return wrong_in_turn(&lanes[0], q);
}

const struct kind confined_kinds[] = {
    {"seccomp", 0, confined_now}, {"seccomp-later", confine_later, confined_already},
    {"time-stamps", 0, without_time_stamps}, {"limits", 0, under_limits}, {"limited", limited_early, limited}, {0, 0, 0}};
