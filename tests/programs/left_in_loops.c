/* Loops that count in a register and are left by a signal: caught, ten times (jump); not caught (fault, alarm); in a
   thread, while the program ends (exit). */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

__asm__(".text\n.globl scan\n.type scan, @function\n"
        "scan: xor %eax, %eax\n"
        "1: movzbl (%rdi), %edx\n inc %rdi\n add %rdx, %rax\n cmp $200, %edx\n jne 1b\n ret\n.size scan, . - scan\n"
        ".globl spin\n.type spin, @function\n"
        "spin: xor %eax, %eax\n"
        "2: inc %rax\n cmp $-1, %rax\n jne 2b\n ret\n.size spin, . - spin\n");
long scan(const unsigned char *from);
void spin(void);

static sigjmp_buf out;

static void jump(int signal)
{
    siglongjmp(out, signal);
}

static void *spinning(void *nothing)
{
    spin();
    return nothing;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "jump";
    unsigned char *pages = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(pages + 4096, 4096, PROT_NONE);
    if (!strcmp(how, "jump")) {
        struct sigaction action = {.sa_handler = jump, .sa_flags = SA_NODEFER};
        sigaction(SIGSEGV, &action, 0);
        volatile int jumped = 0;
        for (volatile int k = 0; k < 10; k++)
            if (sigsetjmp(out, 1))
                jumped++;
            else
                scan(pages + k);
        printf("%d\n", jumped);
    } else if (!strcmp(how, "fault")) {
        scan(pages);
    } else if (!strcmp(how, "alarm")) {
        alarm(1);
        spin();
    } else {
        pthread_t thread;
        pthread_create(&thread, 0, spinning, 0);
        usleep(300000);
    }
}
