"""A first look at a hot address that costs next to nothing: could there be anything to gain?

Code without floating-point arithmetic anywhere near is looked at further only when it seems to lie in a loop that
stores and makes no call and no indirect jump; all else is left alone before a decoder, a solver or an assembler is
even imported. Invariant: this look may say yes too often, hardly ever no to code with SSE or AVX arithmetic within
reach, or to a simple loop.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum

from memopt.ir.reasons import Rejected
from runtime.memory import Memory

REACH = 1024  # bytes before and after the address: more than any unrolled inner loop a compiler makes


def _bytes(allowed: Callable[[int], bool]) -> bytes:
    return b"[" + b"".join(re.escape(bytes((b,))) for b in range(256) if allowed(b)) + b"]"


# add mul sub min div max sqrt, scalar and packed: Intel SDM volume 2, opcodes 0F 51, 58, 59, 5C to 5F; fused forms are
# map 0F38, opcodes 96 to BF. Prefixes: legacy; two-byte VEX with a low destination register (with a high one it looks
# like `mov ebp, eax; pop`); three-byte VEX and EVEX of maps 1 to 3.
_PLAIN, _FUSED = rb"[\x51\x58\x59\x5c-\x5f]", rb"[\x51\x58\x59\x5c-\x5f\x96-\xbf]"
_ARITHMETIC = re.compile(b"|".join((
    rb"\x0f" + _PLAIN,
    rb"\xc5[\x80-\xff]" + _PLAIN,
    rb"\xc4" + _bytes(lambda b: b & 0x1F in (1, 2, 3)) + rb"." + _FUSED,
    rb"\x62" + _bytes(lambda b: b & 0x0F in (1, 2, 3)) + _bytes(lambda b: b & 4 == 4) + rb"." + _FUSED,
)), re.DOTALL)


# mov, movss, movsd, movaps, movups, movdqa, movdqu, movq, movhpd to memory, legacy and VEX; add and others to memory.
_MEMORY = rb"[\x00-\xbf]"  # a ModRM byte that is no register
_STORE = re.compile(b"|".join((
    rb"[\x88\x89\xc6\xc7]" + _MEMORY,
    rb"[\x00\x01\x08\x09\x20\x21\x28-\x31]" + _MEMORY,
    rb"\x0f[\x11\x13\x17\x29\x2b\x7f\xd6\xe7]" + _MEMORY,
    rb"[\xc4\xc5\x62].{1,3}[\x11\x13\x17\x29\x2b\x7f\xd6\xe7]" + _MEMORY,
)), re.DOTALL)
_INDIRECT = re.compile(rb"\xff[\x10-\x17\x20-\x27\x50-\x57\x60-\x67\x90-\x97\xa0-\xa7\xd0-\xd7\xe0-\xe7]")


def around(address: int) -> tuple[int, int]:
    """Addresses for which the look at ``address`` speaks too: what is hot there has its code within reach."""
    return address - REACH // 2, address + REACH // 2


class Look(Enum):
    """What seems to lie around an address."""

    ARITHMETIC = "floating-point arithmetic"
    LOOP = "a simple loop that stores"
    NOTHING = "nothing"


def glance(pid: int, address: int) -> Look:
    """At the code around ``address`` in the live process."""
    try:
        memory = Memory(pid)
    except Rejected:
        return Look.ARITHMETIC  # a full look will give the reason
    try:
        low = memory.read_some(address - REACH, REACH)
        before, after = low if len(low) == REACH else b"", memory.read_some(address, REACH)
    finally:
        memory.close()
    if _ARITHMETIC.search(before + after) is not None:
        return Look.ARITHMETIC
    return Look.LOOP if _in_simple_loop(before + after, len(before)) else Look.NOTHING


def _in_simple_loop(code: bytes, here: int) -> bool:
    """Whether bytes that look like a backward branch span ``here``, with a store and without calls between."""
    for at in range(here, len(code) - 6):
        opcode, rel8 = code[at], code[at + 1]
        if opcode & 0xF0 == 0x70 or opcode == 0xEB:
            end, target = at + 2, at + 2 + (rel8 - 256 if rel8 > 127 else rel8)
        elif (opcode == 0x0F and rel8 & 0xF0 == 0x80) or opcode == 0xE9:
            end = at + (6 if opcode == 0x0F else 5)
            target = end + int.from_bytes(code[end - 4:end], "little", signed=True)
        else:
            continue
        if 0 <= target <= here:
            body = code[target:end]
            if _STORE.search(body) and not _INDIRECT.search(body) and not _calls(body):
                return True
    return False


def _calls(body: bytes) -> bool:
    """Whether bytes look like a call of something less than 16 MiB away."""
    return any(body[at + 4] in (0x00, 0xFF) for at in range(len(body) - 4) if body[at] == 0xE8)
