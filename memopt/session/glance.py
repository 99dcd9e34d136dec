"""A first look at a hot address that costs next to nothing: could there be anything to gain?

Only floating-point nests are improved so far. Code without floating-point arithmetic anywhere near is left alone
before a decoder, a solver or an assembler is even imported. Invariant: this look may say yes too often, never no to
code with SSE or AVX arithmetic within reach.
"""

from __future__ import annotations

import re

from memopt.ir.reasons import Rejected
from runtime.memory import Memory

REACH = 1024  # bytes before and after the address: more than any unrolled inner loop a compiler makes

# add mul sub min div max sqrt, scalar and packed: Intel SDM volume 2, opcodes 0F 51, 58, 59, 5C to 5F, with their
# legacy, two- and three-byte VEX, and EVEX prefixes; fused forms are map 0F38, opcodes 96 to BF.
_ARITHMETIC = re.compile(
    rb"\x0f[\x51\x58\x59\x5c-\x5f]|\xc5.[\x51\x58\x59\x5c-\x5f]|\xc4[\x00-\xff]{2}[\x51\x58\x59\x5c-\x5f\x96-\xbf]"
    rb"|\x62[\x00-\xff]{3}[\x51\x58\x59\x5c-\x5f\x96-\xbf]", re.DOTALL)


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
