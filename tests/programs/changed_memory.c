/* Nests that are run until SIGUSR1 comes; then memory that they do not use is given back, protected, or used by others,
 * and they are run again. Prints a sum for each of the last runs. usage: program MODE
     shorter    tables of rows get as short as they may be (realloc)
     last       the page behind the last word of a table of rows is protected
     freed      rows that are not used any more are freed, their pointers forgotten
     triangle   the first row of a triangle is in no iteration; its pointer is protected
     flag       the bound of a loop that is not run any more is given back
     padding    square roots, among them that of a negative number, beside a column in which a signal handler counts
     holes      square roots in rows with protected pages between them
     sums       sums in two orders, in rows with protected pages between them */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

enum { N = 200, ROWS = 20000, PAGE = 4096, LONGEST_SECONDS = 280, AGAIN = 3 };

static volatile sig_atomic_t told;

static void on_word(int number)
{
    (void)number;
    told = 1;
}

static void *pages(size_t count)
{
    void *found = mmap(0, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED)
        exit(2);
    return found;
}

/* -- tables of rows ------------------------------------------------------------------------------------------------ */

__attribute__((noinline)) static void product(double **c, double **a, double **b, int n)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int k = 0; k < n; k++)
                sum += a[i][k] * b[k][j];
            c[i][j] = sum;
        }
}

__attribute__((noinline)) static void triangle(double **c, double **a, int n)
{
    for (int i = 1; i < n; i++)
        for (int j = 1; j < i; j++)
            for (int k = 0; k < N; k++)
                c[i][k] += a[j][k] * 0.5;
}

static double **table(double **words, int rows)
{
    double *all = calloc((size_t)rows * N, sizeof *all);
    for (int i = 0; i < rows; i++) {
        words[i] = all + (size_t)i * N;
        for (int j = 0; j < N && i < N; j++)
            words[i][j] = (i * N + j) % 1013;
    }
    return words;
}

static double of_rows(double **c)
{
    double sum = 0;
    for (int i = 1; i < N - 1; i++)
        for (int j = 0; j < N; j++)
            sum += c[i][j] * (j % 7);
    return sum;
}

static double **a, **b, **c;

static void make_tables(void)
{
    a = table(malloc(ROWS * sizeof *a), ROWS);
    b = table(malloc(ROWS * sizeof *b), ROWS);
    c = table(malloc(ROWS * sizeof *c), ROWS);
}

static double run_product(void)
{
    product(c, a, b, N);
    return of_rows(c);
}

static void get_shorter(void)
{
    a = realloc(a, N * sizeof *a);
    b = realloc(b, N * sizeof *b);
    c = realloc(c, N * sizeof *c);
}

/* Tables in which word number N begins a page. */
static double **at_the_end_of_a_page(void)
{
    char *whole = pages(3);
    return table((double **)(whole + 2 * PAGE) - N, N + 100);
}

static void make_ends(void)
{
    a = at_the_end_of_a_page();
    b = at_the_end_of_a_page();
    c = at_the_end_of_a_page();
}

static void protect_behind(void)
{
    for (int t = 0; t < 3; t++)
        if (mprotect((t == 0 ? a : t == 1 ? b : c) + N, PAGE, PROT_NONE))
            exit(2);
}

static double *rest[3];

static double **two_parts(int t)
{
    double **words = malloc(2 * N * sizeof *words), *all = pages(2 * N * N * sizeof *all / PAGE + 1);
    for (int i = 0; i < 2 * N; i++) {
        words[i] = all + (size_t)i * N;
        for (int j = 0; j < N; j++)
            words[i][j] = (i * N + j) % 1013;
    }
    rest[t] = all + (size_t)N * N;
    return words;
}

static void make_parts(void)
{
    a = two_parts(0);
    b = two_parts(1);
    c = two_parts(2);
}

static void free_rows(void)
{
    for (int t = 0; t < 3; t++) {
        uintptr_t first = ((uintptr_t)rest[t] + PAGE - 1) / PAGE * PAGE;
        uintptr_t last = (uintptr_t)(rest[t] + N * N) / PAGE * PAGE;
        munmap((void *)first, last - first);
        double **words = t == 0 ? a : t == 1 ? b : c;
        for (int i = N; i < 2 * N; i++)
            words[i] = (double *)(uintptr_t)i;
    }
}

/* The triangle reads a[1] .. a[N-2]; a[0] is the last word of a page. */
static void make_triangle(void)
{
    char *whole = pages(4);
    a = table((double **)(whole + PAGE) - 1, N);
    c = table(malloc(N * sizeof *c), N);
}

static double run_triangle(void)
{
    for (int i = 0; i < N; i++)
        memset(c[i], 0, N * sizeof **c);
    triangle(c, a, N);
    return of_rows(c);
}

static void protect_first(void)
{
    if (mprotect((char *)(a + 1) - PAGE, PAGE, PROT_NONE))
        exit(2);
}

/* -- a bound behind a flag ----------------------------------------------------------------------------------------- */

static long *flag, *bound;
static double sums[N][N], numbers[N];

__attribute__((noinline)) static void add_rows(int n, const long *flag, const long *bound)
{
    for (int i = 0; i < n; i++)
        if (*flag == 1)
            for (long j = 0; j < *bound; j++)
                sums[i][j] += numbers[j] * 0.25;
}

static void make_flag(void)
{
    flag = pages(1);
    bound = pages(1);
    *flag = 1;
    *bound = N;
    for (int j = 0; j < N; j++)
        numbers[j] = j % 13;
}

static double run_flag(void)
{
    double sum = 0;
    memset(sums, 0, sizeof sums);
    for (int r = 0; r < 40; r++)
        add_rows(N, flag, bound);
    for (int i = 0; i < N; i++)
        sum += sums[i][i % N] * (i % 7);
    return sum;
}

static void give_bound_back(void)
{
    *flag = 0;
    munmap(bound, PAGE);
}

/* -- rows with something between them ------------------------------------------------------------------------------ */

enum { LINES = 16, STRIDE = 2 * PAGE / 8, WIDTH = PAGE / 8, STEPS = 40 };

static double *from, *to;

/* Columns WIDTH and above are padding. */
static void make_lines(void)
{
    from = pages(2 * LINES);
    to = pages(2 * LINES);
    for (int i = 0; i < LINES; i++)
        for (int j = 0; j < WIDTH; j++)
            from[i * STRIDE + j] = 1 + (i + j) % 11;
}

static void clear_lines(void)
{
    for (int i = 0; i < LINES; i++)
        memset(to + i * STRIDE, 0, WIDTH * sizeof *to);
}

static double of_lines(void)
{
    double sum = 0;
    for (int i = 0; i < LINES; i++)
        for (int j = 0; j < WIDTH; j += 17)
            sum += to[i * STRIDE + j] > 0 ? to[i * STRIDE + j] * (j % 7) : 0;
    return sum;
}

static void protect_holes(void)
{
    for (int i = 0; i < LINES; i++)
        if (mprotect(from + i * STRIDE + WIDTH, PAGE, PROT_NONE) || mprotect(to + i * STRIDE + WIDTH, PAGE, PROT_NONE))
            exit(2);
}

__attribute__((noinline)) static void roots(int steps, const double *x, double *y)
{
    for (int t = 0; t < steps; t++)
        for (int i = 0; i < LINES; i++)
            for (int j = 0; j < WIDTH; j++)
                y[i * STRIDE + j] = sqrt(x[i * STRIDE + j] + y[i * STRIDE + j]);
}

static double run_roots(void)
{
    clear_lines();
    errno = 0;
    roots(STEPS, from, to);
    return of_lines() + (errno == EDOM);
}

static volatile uint64_t counted;

static uint64_t *counter(void)
{
    return (uint64_t *)(to + LINES / 2 * STRIDE + WIDTH);
}

static void on_alarm(int number)
{
    (void)number;
    counted++;
    ++*(volatile uint64_t *)counter();
}

static void alarm_every(int microseconds)
{
    struct itimerval every = {{0, microseconds}, {0, microseconds}};
    setitimer(ITIMER_REAL, &every, 0);
}

static void make_padding(void)
{
    make_lines();
    signal(SIGALRM, on_alarm);
    alarm_every(10000);
}

static void make_negative(void)
{
    from[(LINES - 2) * STRIDE + 5] = -30;
    alarm_every(100);
}

static double run_padding(void)
{
    double sum = run_roots();
    sigset_t alarms, before;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    sigprocmask(SIG_BLOCK, &alarms, &before);
    if (*counter() != counted)
        sum = -1;
    sigprocmask(SIG_SETMASK, &before, 0);
    return sum;
}

__attribute__((noinline)) static void add_twice(int steps, const double *x, double *y)
{
    for (int t = 0; t < steps; t++)
        for (int i = 0; i < LINES; i++)
            for (int j = 0; j < WIDTH; j += 2) {
                double one = y[i * STRIDE + j], two = x[i * STRIDE + j + 1];
                __asm__("addsd %1, %0" : "+x"(one) : "m"(x[i * STRIDE + j]));
                __asm__("addsd %1, %0" : "+x"(two) : "m"(y[i * STRIDE + j + 1]));
                y[i * STRIDE + j] = one;
                y[i * STRIDE + j + 1] = two;
            }
}

static double run_sums(void)
{
    clear_lines();
    add_twice(STEPS, from, to);
    return of_lines();
}

/* -- modes --------------------------------------------------------------------------------------------------------- */

static const struct mode {
    const char *name;
    void (*make)(void);
    double (*run)(void);
    void (*change)(void);
} modes[] = {
    {"shorter", make_tables, run_product, get_shorter},
    {"last", make_ends, run_product, protect_behind},
    {"freed", make_parts, run_product, free_rows},
    {"triangle", make_triangle, run_triangle, protect_first},
    {"flag", make_flag, run_flag, give_bound_back},
    {"padding", make_padding, run_padding, make_negative},
    {"holes", make_lines, run_roots, protect_holes},
    {"sums", make_lines, run_sums, protect_holes},
};

int main(int argc, char **argv)
{
    const struct mode *mode = modes;
    while (mode < modes + sizeof modes / sizeof *modes && strcmp(mode->name, argc > 1 ? argv[1] : ""))
        mode++;
    if (mode == modes + sizeof modes / sizeof *modes)
        return 2;
    mode->make();
    signal(SIGUSR1, on_word);
    fprintf(stderr, "ready %d\n", (int)getpid());
    double first = mode->run();
    uint64_t different = 0;
    for (int call = 1; call < 2 || !told; call++)
        different += mode->run() != first;
    mode->change();
    printf("%a, different %llu\n", first, (unsigned long long)different);
    for (int call = 0; call < AGAIN; call++)
        printf("%a\n", mode->run());
    return 3;
}
