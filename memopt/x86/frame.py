"""The layout of the frame page: saved registers, symbols and temporaries of a version.

A version has no stack frame, because it must not touch the program's stack; its frame is a page of its own.

In: the names of the live-in symbols, the bytes of local temporaries, the size of the XSAVE area. Out: the offsets.
Every part has bytes of its own. No offset depends on ``local_bytes``, only ``size`` does, so a kernel may be generated
for a layout before its need of local bytes is known. Code that uses a frame expects ``busy``, ``limit``, ``chunk`` and
``holder`` to be set; all other bytes may hold anything.
"""

from __future__ import annotations

from collections.abc import Mapping

from memopt.ir.code import FRAME_BUSY, FRAME_CHUNK, FRAME_HOLDER, FRAME_LIMIT
from memopt.ir.frozen import dataclass
from memopt.ir.scop import LIMIT, TRIPS
from memopt.x86.instructions import GENERAL

_CAP = FRAME_HOLDER + 8
_AGAIN = _CAP + 8
_REGISTERS = _AGAIN + 8
_FLAGS = _REGISTERS + 8 * len(GENERAL)
_MXCSR = _FLAGS + 8
_TEMPORARY = _MXCSR + 8
_SYMBOLS = _TEMPORARY + 8
# Slots of code for a file (passes.version.file_entry), named so that no live-in has the name: the address of the frame;
# whether the version may run here (0: not known yet); passes by the header that it still rests for; entries since the
# last run whose guards failed; the components of the vector state that are saved.
FRAME, READY, REST, MISSES, COMPONENTS = ".frame", ".ready", ".rest", ".misses", ".components"
IN_FILE = (FRAME, READY, REST, MISSES, COMPONENTS)
# Offsets in the XSAVE area (standard format) of the two 16-byte halves of ymm0 (Intel SDM 1, 13.4 and 13.5.3).
XMM_OFFSET, YMM_OFFSET = 160, 576
XSAVE_BYTES = 2696  # size of the standard format with AVX-512 and protection keys; CPUID leaf 0xd has the machine's


def align(value: int, boundary: int) -> int:
    """``value`` rounded up to a multiple of ``boundary``."""
    return -(-value // boundary) * boundary


@dataclass(frozen=True, slots=True)
class FrameLayout:
    """Byte offsets from the start of the frame (rbp in a kernel)."""

    busy: int  # the lock of the frame, 8 bytes: not 0 while a version runs
    limit: int  # upper bound on H, 8 bytes
    chunk: int  # another one; when the version has run so many iterations, it enters itself again
    holder: int  # the stack pointer of the entry that holds the frame, 0 while nobody does
    cap: int  # the iterations that this run would do without ``chunk``
    again: int  # 1 when the version enters itself again, else 0
    registers: int  # the 16 general-purpose registers in the machine's order (rax, rcx, rdx, rbx, rsp, ...)
    flags: int  # ah and al after lahf and seto al
    mxcsr: int  # 4 bytes
    temporary: int  # 8 bytes for the guards
    symbols: Mapping[str, int]  # one 64-bit value each, sign- or zero-extended; R and H among them
    xsave: int  # the vector state
    locals: int  # the kernel's own bytes, 64-byte aligned if the frame is
    local_bytes: int  # their number
    size: int  # bytes of the whole frame

    @staticmethod
    def build(symbols: tuple[str, ...], local_bytes: int, xsave_bytes: int = XSAVE_BYTES) -> FrameLayout:
        """A frame for these live-in symbols (R and H are added) and an XSAVE area of ``xsave_bytes``."""
        names = dict.fromkeys((TRIPS, LIMIT, *symbols))
        offsets = {name: _SYMBOLS + 8 * position for position, name in enumerate(names)}
        xsave = align(_SYMBOLS + 8 * len(offsets), 64)
        local = xsave + align(xsave_bytes, 64)
        return FrameLayout(FRAME_BUSY, FRAME_LIMIT, FRAME_CHUNK, FRAME_HOLDER, _CAP, _AGAIN, _REGISTERS, _FLAGS, _MXCSR,
                           _TEMPORARY, offsets, xsave, local, local_bytes, align(local + local_bytes, 64))

    def register(self, name: str) -> int:
        """The slot of a 64-bit general-purpose register; ``ValueError`` for any other name."""
        return self.registers + 8 * GENERAL.index(name)

    def lane(self, register: str, offset: int) -> int:
        """The offset in the frame of byte ``offset`` (0 .. 31) of a vector register, once the vector state is saved."""
        half = XMM_OFFSET if offset < 16 else YMM_OFFSET
        return self.xsave + half + 16 * int(register.removeprefix("xmm")) + offset % 16
