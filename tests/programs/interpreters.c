/* Two interpreters of one language, by labels as values and by a switch, called ROUNDS times each. */
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) static long by_labels(const unsigned char *at, long state)
{
    static const void *const ways[] = {&&add, &&scale, &&flip, &&take, &&end};
    goto *ways[*at++];
add:
    state += 1;
    goto *ways[*at++];
scale:
    state *= 3;
    goto *ways[*at++];
flip:
    state ^= 0x55;
    goto *ways[*at++];
take:
    state -= 7;
    goto *ways[*at++];
end:
    return state;
}

__attribute__((noinline)) static long by_switch(const unsigned char *at, long state)
{
    for (;;)
        switch (*at++) {
        case 0: state += 1; break;
        case 1: state *= 3; break;
        case 2: state ^= 0x55; break;
        case 3: state -= 7; break;
        case 4: return state;
        case 5: state += 9; break;
        case 6: state = ~state; break;
        }
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 10;
    unsigned char program[201];
    for (int i = 0; i < 200; i++)
        program[i] = (i * i + i / 3) % 4;
    program[200] = 4;
    long state = 1;
    for (int i = 0; i < rounds; i++)
        state = by_switch(program, by_labels(program, state));
    printf("%ld\n", state);
}
