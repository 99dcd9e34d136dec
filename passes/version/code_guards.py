"""Guards on machine code: the nest in the program's memory is still the code that was lifted.

Example: a program makes its text writable for a moment and changes a constant in its hot loop, or a just-in-time
compiler patches the code that it has made. The version was made for the old bytes, so its guard compares them.

In: the region (``Region.code``). Out: code that jumps to ``fail`` where a byte differs. It changes rax,
rcx, rdx, rbp and the flags. The five bytes under the patch are not compared, because the patch is there.
Sound because code does not change under a thread that executes it: a program that changes code which another of its
threads executes must stop that thread first (Intel SDM volume 3, 9.1.3, cross-modifying code).
"""

from __future__ import annotations

from collections.abc import Iterator

from memopt.ir.region import Region
from memopt.x86.instructions import Bytes, Item, Label, Mem, instruction, jump
from memopt.x86.relocate import JUMP_SIZE
from passes.version.guards import FAIL

COPIES = "code_copies"
_LEAST_LOOP = 32  # bytes; shorter parts are compared with immediate operands


def unchanged(region: Region) -> Iterator[Item]:
    """Jump to ``fail`` unless all bytes of ``Region.code`` are as they were lifted."""
    for number, (start, data) in enumerate(_parts(region)):
        whole = len(data) // 8 * 8 if len(data) >= _LEAST_LOOP else 0
        if whole:
            yield from _loop(f"code_{number}", start, whole)
        yield from _short(start + whole, data[whole:])


def copies(region: Region) -> Iterator[Item]:
    """The data that ``unchanged`` compares with, to be put behind all code."""
    for number, (_, data) in enumerate(_parts(region)):
        if len(data) >= _LEAST_LOOP:
            yield Label(f"code_{number}_copy")
            yield Bytes(data[:len(data) // 8 * 8])


def _parts(region: Region) -> Iterator[tuple[int, bytes]]:
    """The intervals of code without the bytes under the patch, as (address, bytes)."""
    patched = region.header, region.header + JUMP_SIZE
    for start, data in region.code:
        end = start + len(data)
        for low, high in ((start, min(end, patched[0])), (max(start, patched[1]), end)):
            if low < high:
                yield low, data[low - start:high - start]


def _loop(label: str, start: int, size: int) -> Iterator[Item]:
    """Compare ``size`` bytes, a multiple of 8: rcx counts up to zero."""
    yield instruction("lea", "rdx", Mem("rip", displacement=start + size))
    yield instruction("lea", "rbp", Mem("rip", displacement=size, symbol=f"{label}_copy"))
    yield instruction("mov", "rcx", -size)
    yield Label(label)
    yield instruction("mov", "rax", Mem("rdx", index="rcx"))
    yield instruction("cmp", "rax", Mem("rbp", index="rcx"))
    yield jump(FAIL, "ne")
    yield instruction("add", "rcx", 8)
    yield jump(label, "ne")


def _short(start: int, data: bytes) -> Iterator[Item]:
    while data:
        size = next(n for n in (4, 2, 1) if n <= len(data))
        yield instruction("cmp", Mem("rip", displacement=start, size=size),
                          int.from_bytes(data[:size], "little", signed=True))
        yield jump(FAIL, "ne")
        start, data = start + size, data[size:]
