/* Matrix products until SIGUSR1 comes, and between two of them things that a second process with the same descriptors
   or mappings would show. usage: program MODE. Prints how often a thing was not as it has to be: 0 if nobody else holds
   it.
     flock       a lock of an open file is there again once its descriptor is closed
     ofd         the same for an open-file-description lock
     posix       a record lock is kept over the products: nobody else may have it
     port        a port may be listened at again once its socket is closed
     pipe        the end of a pipe is seen once the other end is closed
     full        a write to a pipe without a reader fails
     epoll       a closed descriptor is reported by epoll no more
     eventfd     a descriptor that is closed in the program is gone from its table, and only there
     mapped      a locked file that was mapped is unlocked once it is unmapped and closed
     segment     a segment of System V is attached once, and gone when it is detached
     directory   (as root) the file system of the working directory can be unmounted once it is left
*/
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define N 96
static double a[N][N], b[N][N], c[N][N];

__attribute__((noinline)) static void product(int n)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int k = 0; k < n; k++)
                sum += a[i][k] * b[k][j];
            c[i][j] = sum;
        }
    __asm__ volatile("" ::: "memory");
}

/* Long enough for a copy to come from one product to the next. */
static void compute(void)
{
    for (int i = 0; i < 4; i++)
        product(N);
}

static volatile sig_atomic_t told;

static void on_word(int number)
{
    (void)number;
    told = 1;
}

static char name[] = "held-XXXXXX";

static int is(const char *mode, const char *word) { return !strcmp(mode, word); }

static int with_lock(const char *mode)
{
    int first = open(name, O_RDWR | O_CLOEXEC), wrong;
    struct flock all = {.l_type = F_WRLCK};
    wrong = (is(mode, "ofd") ? fcntl(first, F_OFD_SETLK, &all) : flock(first, LOCK_EX | LOCK_NB)) != 0;
    char *at = is(mode, "mapped") ? mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, first, 0) : 0;
    compute();
    if (at)
        ++*at, munmap(at, 4096);
    close(first);
    return wrong;
}

/* The lock is this process's: another one finds it, and it is there until this one gives it back. */
static int with_record_lock(void)
{
    int file = open(name, O_RDWR | O_CLOEXEC);
    struct flock all = {.l_type = F_WRLCK};
    int wrong = fcntl(file, F_SETLK, &all) != 0;
    compute();
    if (!fork()) {
        struct flock other = {.l_type = F_WRLCK};
        _exit(fcntl(file, F_GETLK, &other) || other.l_type != F_WRLCK || other.l_pid != getppid());
    }
    int status;
    wait(&status);
    wrong |= status != 0;
    close(file);
    return wrong;
}

static int with_port(int port)
{
    int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int wrong = bind(listening, (void *)&at, sizeof at) != 0 || listen(listening, 1) != 0;
    compute();
    close(listening);
    return wrong;
}

static int with_pipe(const char *mode)
{
    int ends[2], wrong;
    char byte = 0;
    if (pipe2(ends, O_CLOEXEC))
        return 1;
    compute();
    if (is(mode, "full")) {
        close(ends[0]);
        wrong = write(ends[1], &byte, 1) != -1 || errno != EPIPE;
        close(ends[1]);
    } else {
        close(ends[1]);
        struct pollfd end = {ends[0], POLLIN, 0};
        wrong = poll(&end, 1, 0) != 1 || read(ends[0], &byte, 1) != 0;
        close(ends[0]);
    }
    return wrong;
}

static int with_epoll(void)
{
    int events = epoll_create1(EPOLL_CLOEXEC), ready = eventfd(1, EFD_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    int wrong = epoll_ctl(events, EPOLL_CTL_ADD, ready, &event) != 0;
    compute();
    close(ready);
    wrong |= epoll_wait(events, &event, 1, 0) != 0;
    close(events);
    return wrong;
}

static int with_eventfd(void)
{
    int before = dup(0), counter = eventfd(7, EFD_CLOEXEC | EFD_NONBLOCK);
    unsigned long value = 0;
    compute();
    int wrong = read(counter, &value, 8) != 8 || value != 7 || read(counter, &value, 8) != -1 || errno != EAGAIN;
    wrong |= close(counter) != 0 || close(counter) != -1;
    close(before);
    return wrong || dup(0) != before || close(before);
}

static int with_segment(int size)
{
    int segment = shmget(IPC_PRIVATE, size, IPC_CREAT | 0600);
    volatile char *at = shmat(segment, 0, 0);
    struct shmid_ds about;
    *at = 5;
    compute();
    int wrong = *at != 5 || shmctl(segment, IPC_STAT, &about) != 0 || about.shm_nattch != 1;
    shmctl(segment, IPC_RMID, 0);
    shmdt((void *)at);
    return wrong || shmctl(segment, IPC_STAT, &about) != -1;
}

static int with_directory(void)
{
    char place[] = "mount-XXXXXX", here[4096];
    int wrong = !getcwd(here, sizeof here) || !mkdtemp(place) || mount("none", place, "tmpfs", 0, 0) || chdir(place);
    for (int i = 0; i < 20; i++)
        compute();
    wrong |= chdir(here) || umount(place) || rmdir(place);
    return wrong;
}

int main(int count, char **arguments)
{
    const char *mode = count > 1 ? arguments[1] : "flock";
    int wrong = 0, port = 20000 + getpid() % 20000;
    signal(SIGPIPE, SIG_IGN);
    signal(SIGUSR1, on_word);
    int file = mkstemp(name);
    if (file < 0 || ftruncate(file, 4096) || close(file))
        return 1;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            a[i][j] = (i + j) % 7, b[i][j] = (i * j) % 9;
    alarm(280);
    fprintf(stderr, "ready %d\n", (int)getpid());
    for (int round = 0; round < 2 || !told; round++) {
        if (is(mode, "flock") || is(mode, "ofd") || is(mode, "mapped"))
            wrong += with_lock(mode);
        else if (is(mode, "posix"))
            wrong += with_record_lock();
        else if (is(mode, "port"))
            wrong += with_port(port);
        else if (is(mode, "pipe") || is(mode, "full"))
            wrong += with_pipe(mode);
        else if (is(mode, "epoll"))
            wrong += with_epoll();
        else if (is(mode, "eventfd"))
            wrong += with_eventfd();
        else if (is(mode, "segment"))
            wrong += with_segment(round & 1 ? 4096 : 8 << 20);
        else if (is(mode, "directory"))
            wrong += with_directory();
    }
    unlink(name);
    double sum = 0;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            sum += c[i][j] * (j % 5);
    printf("%d wrong, %a\n", wrong, sum);
    return 3;
}
