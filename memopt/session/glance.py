"""A first look at a hot address that costs next to nothing: could there be anything to gain?

Only floating-point nests are improved so far. Code without floating-point arithmetic anywhere near is left alone
before a decoder, a solver or an assembler is even imported. Invariant: this look may say yes too often, hardly ever
no to code with SSE or AVX arithmetic within reach.
"""

from __future__ import annotations

import re
from collections.abc import Callable

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


def around(address: int) -> tuple[int, int]:
    """Addresses for which the look at ``address`` speaks too: what is hot there has its code within reach."""
    return address - REACH // 2, address + REACH // 2


def computes(pid: int, address: int) -> bool:
    """Whether there is floating-point arithmetic near ``address`` in the live process."""
    try:
        memory = Memory(pid)
    except Rejected:
        return True  # a full look will give the reason
    try:
        low = memory.read_some(address - REACH, REACH)
        code = (low if len(low) == REACH else b"") + memory.read_some(address, REACH)
    finally:
        memory.close()
    return _ARITHMETIC.search(code) is not None
