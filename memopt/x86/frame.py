"""The frame page: where a version keeps the program's registers, its symbols and its temporaries.

Invariant: every part has its own bytes; the offsets of everything but ``size`` do not depend on ``local_bytes``, so a
kernel may be generated for a layout before its need of local bytes is known. The code that uses a frame expects
``busy`` and ``limit`` to be set, and nothing of the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from memopt.ir.code import FRAME_BUSY, FRAME_LIMIT
from memopt.ir.scop import LIMIT, TRIPS
from memopt.x86.instructions import GENERAL

_REGISTERS = 16
_FLAGS = _REGISTERS + 8 * len(GENERAL)
_MXCSR = _FLAGS + 8
_CYCLES = _MXCSR + 8
_TEMPORARY = _CYCLES + 8
_SYMBOLS = _TEMPORARY + 8
# Where the standard format keeps the two halves of vector register 0 (Intel SDM 1, 13.4 and 13.5.3); 16 bytes each.
XMM_OFFSET, YMM_OFFSET = 160, 576
XSAVE_BYTES = 2696  # standard format with AVX-512 and protection keys; CPUID leaf 0xd reports the machine's


def align(value: int, boundary: int) -> int:
    """The next multiple of ``boundary``."""
    return -(-value // boundary) * boundary


@dataclass(frozen=True, slots=True)
class FrameLayout:
    """Byte offsets from the start of the frame (rbp in a kernel).

    ``registers`` holds the 16 general-purpose registers in the machine's order (rax, rcx, rdx, rbx, rsp, ...);
    ``flags`` ah:al of lahf and seto; ``mxcsr`` 4 bytes; ``cycles`` the time stamp at
    the start of the run; ``temporary`` 8 bytes for the guards; ``symbols`` one sign- or zero-extended 64-bit value
    each, R and H among them; ``xsave`` the vector state; ``locals`` the kernel's own ``local_bytes``, 64-byte aligned
    when the frame is.
    """

    busy: int
    limit: int
    registers: int
    flags: int
    mxcsr: int
    cycles: int
    temporary: int
    symbols: Mapping[str, int]
    xsave: int
    locals: int
    local_bytes: int
    size: int

    @staticmethod
    def build(symbols: tuple[str, ...], local_bytes: int, xsave_bytes: int = XSAVE_BYTES) -> FrameLayout:
        """A frame for these live-in symbols (R and H are added) and an XSAVE area of ``xsave_bytes``."""
        names = dict.fromkeys((TRIPS, LIMIT, *symbols))
        offsets = {name: _SYMBOLS + 8 * position for position, name in enumerate(names)}
        xsave = align(_SYMBOLS + 8 * len(offsets), 64)
        local = xsave + align(xsave_bytes, 64)
        return FrameLayout(FRAME_BUSY, FRAME_LIMIT, _REGISTERS, _FLAGS, _MXCSR, _CYCLES, _TEMPORARY, offsets,
                           xsave, local, local_bytes, align(local + local_bytes, 64))

    def register(self, name: str) -> int:
        """The slot of a 64-bit general-purpose register; ``ValueError`` for any other name."""
        return self.registers + 8 * GENERAL.index(name)

    def lane(self, register: str, offset: int) -> int:
        """Byte ``offset`` of a vector register, once the vector state is saved."""
        half = XMM_OFFSET if offset < 16 else YMM_OFFSET
        return self.xsave + half + 16 * int(register.removeprefix("xmm")) + offset % 16
