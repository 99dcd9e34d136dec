/* Other processes: children that go on with the nest, programs that are started, what is held and given back. */
#include "surroundings.h"
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

extern char **environ;

static long collected(void)
{
    long wrong = 0;
    int status;
    while (waitpid(-1, &status, 0) > 0)
        wrong += status != 0;
    return wrong;
}

/* p children at a time, q times: all compute, and the parent too. */
static long forked(long p, long q)
{
    long wrong = 0;
    effective();
    for (long n = 0; n < q; n++) {
        for (long c = 0; c < p; c++)
            if (fork() == 0)
                _exit(wrong_in_turn(&lanes[c % LANES], 6 + c) ? 1 : 0);
        wrong += wrong_in_turn(&lanes[0], 6);
        wrong += collected();
    }
    return wrong;
}

/* Programs are started by posix_spawn, and by vfork and execve. */
static long spawned(long p, long q)
{
    long wrong = 0;
    char *const words[] = {"true", 0};
    effective();
    for (long n = 0; n < q; n++) {
        pid_t child;
        if (n % 2 == p % 2) {
            if (posix_spawn(&child, "/bin/true", 0, 0, words, environ))
                return -1;
        } else if ((child = vfork()) == 0) {
            execve("/bin/true", words, environ);
            _exit(1);
        }
        wrong += wrong_in_turn(&lanes[0], 3);
        wrong += collected();
    }
    return wrong;
}

/* A child becomes this program again; p: the program itself does, at the end. */
static long executed(long p, long q)
{
    long wrong = 0;
    char *const words[] = {arguments[0], "counter:0:700", 0};
    effective();
    unsetenv("AWAIT_NEW_CODE");
    for (long n = 0; n < q; n++) {
        if (fork() == 0) {
            dup2(open("/dev/null", O_WRONLY), 1);
            dup2(1, 2);
            execv("/proc/self/exe", words);
            _exit(1);
        }
        wrong += wrong_in_turn(&lanes[0], 6);
        wrong += collected();
    }
    if (p) {
        say("becomes itself: %ld wrong\n", wrong);
        if (write(2, "acted executed 1\n", 17) != 17)
            _exit(87);
        execv("/proc/self/exe", words);
        _exit(86);
    }
    return wrong;
}

/* Each round takes a lock, a name of a socket and a pipe, and gives them back: nobody else may hold them. */
static int lock_fd = -1, socket_fd = -1, ends[2];
static long held_by_others;
static char lock_name[60];

static void take(void)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "surroundings-%d", (int)getpid());
    lock_fd = open(lock_name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    socket_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    held_by_others += flock(lock_fd, LOCK_EX | LOCK_NB) != 0;
    held_by_others += bind(socket_fd, (struct sockaddr *)&name, sizeof name) != 0;
    if (pipe(ends))
        _exit(85);
}

static void give(void)
{
    char byte;
    close(ends[1]);
    struct pollfd end = {ends[0], POLLIN, 0};
    held_by_others += poll(&end, 1, 0) != 1 || read(ends[0], &byte, 1) != 0;
    close(ends[0]);
    close(socket_fd);
    close(lock_fd);
}

static void hold(long p, long q)
{
    snprintf(lock_name, sizeof lock_name, "/tmp/surroundings-%d", (int)getpid());
    before_round = take;
    after_round = give;
}

static long held(long p, long q)
{
    long wrong = 0;
    effective();
    for (long n = 0; n < q; n++) {
        take();
        wrong += wrong_in_turn(&lanes[0], 3);
        give();
    }
    unlink(lock_name);
    return wrong + held_by_others;
}

const struct kind process_kinds[] = {
    {"forked", 0, forked}, {"spawned", 0, spawned}, {"executed", 0, executed}, {"holding", hold, held}, {0, 0, 0}};
