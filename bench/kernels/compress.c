/* Dictionary compression of generated text by codes of growing width, in the manner of Lempel, Ziv and Welch; the texts
   have words of different kinds. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BITS = 16, CODES = 1 << BITS, TABLE = 69001, CLEAR = 256, FIRST = 257, CHECK = 10000 };

static int32_t keys[TABLE];
static uint16_t values[TABLE];

typedef struct { uint8_t *bytes; long size, place; uint64_t hold; int held; } stream;

static uint32_t state = 12345;

static uint32_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

static void generate(uint8_t *text, long size, int phase)
{
    static const char *const vowels = "aeiouy", *const others = "bcdfghjklmnpqrstvwxz";
    long at = 0;
    while (at < size) {
        int letters = 2 + draw() % (phase + 4);
        for (int i = 0; i < letters && at < size; i++)
            text[at++] = i % 2 ? vowels[draw() % 6] : others[draw() % (6 + 3 * phase)];
        if (at < size)
            text[at++] = draw() % 12 ? ' ' : draw() % 3 ? ',' : '\n';
        if (phase == 2 && draw() % 8 == 0)
            for (int i = 0; i < 24 && at < size; i++)
                text[at++] = '0' + draw() % 10;
    }
}

__attribute__((noinline)) static void put(stream *out, unsigned code, int width)
{
    out->hold |= (uint64_t)code << out->held;
    out->held += width;
    while (out->held >= 8) {
        if (out->place < out->size)
            out->bytes[out->place] = (uint8_t)out->hold;
        out->place++;
        out->hold >>= 8;
        out->held -= 8;
    }
}

__attribute__((noinline)) static int find(int32_t key)
{
    int at = (int)(((uint32_t)key * 2654435761u) >> 15) % TABLE;
    int step = at ? TABLE - at : 1;
    while (keys[at] >= 0 && keys[at] != key) {
        at -= step;
        if (at < 0)
            at += TABLE;
    }
    return at;
}

__attribute__((noinline)) static void compress(stream *out, const uint8_t *text, long size)
{
    int next = FIRST, width = 9, code = text[0];
    long checked = 0, before = 0;
    memset(keys, -1, sizeof keys);
    for (long at = 1; at < size; at++) {
        int32_t key = text[at] << BITS | code;
        int place = find(key);
        if (keys[place] == key) {
            code = values[place];
            continue;
        }
        put(out, (unsigned)code, width);
        code = text[at];
        if (next < CODES) {
            if (next >= 1 << width)
                width++;
            keys[place] = key;
            values[place] = (uint16_t)next++;
        } else if (at - checked > CHECK) {
            if (out->place - before > CHECK / 2) {
                put(out, CLEAR, width);
                memset(keys, -1, sizeof keys);
                next = FIRST;
                width = 9;
            }
            checked = at;
            before = out->place;
        }
    }
    put(out, (unsigned)code, width);
    put(out, 0, 8);
}

int main(int argc, char **argv)
{
    long size = 3000017, rounds = argc > 1 ? atol(argv[1]) : 12;
    uint8_t *texts[3], *packed = malloc(2 * size);
    for (int phase = 0; phase < 3; phase++) {
        texts[phase] = malloc(size);
        if (!texts[phase] || !packed)
            return 1;
        generate(texts[phase], size, phase);
    }
    long total = 0;
    uint64_t sum = 0;
    for (long round = 0; round < rounds; round++) {
        stream out = {packed, 2 * size, 0, 0, 0};
        compress(&out, texts[round % 3], size);
        total += out.place;
        sum = sum * 31 + packed[out.place / 2];
    }
    printf("%ld bytes in %ld, %016lx\n", rounds * size, total, sum);
    return 0;
}
