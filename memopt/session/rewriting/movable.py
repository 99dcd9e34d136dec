"""Whether a version works wherever its program is loaded, in every process: a condition of being written to a file.

Example: a loop ends at a pointer into the heap, and its guard compares it with 0x55d0c3a2a2a0. That never holds in
another process, so the version would be useless. A guard that *reads* memory at such a number would crash. Both are
refused: NOT_MOVABLE.

In: the region and the machine code of a version that is in service, the mappings of its process. Out: nothing, or
Rejected(NOT_MOVABLE). The region is looked at, and then once more the finished code: no number in it may be an address
of the process. Addresses in the file itself are relative to the header by construction (``lift_block``, ``origin``);
where the file is loaded at a fixed address, they may be numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from memopt.elf.image import PT_LOAD, ElfError, Image
from memopt.ir.code import CompiledRegion
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Cell, Progression, Region
from memopt.ir.scop import has_calls
from memopt.x86.decoder import decode
from runtime.target.memory import Mapping

_LEAST_ADDRESS = 1 << 16  # no smaller number is an address (mmap_min_addr)
_NUMBER = re.compile(r"(?<![\w+-])(-?0x[0-9a-f]+)\b(?!\])")
_PT_INTERP, _GLIBC = 3, b"/ld-linux-x86-64.so.2\0"


def check_movable(compiled: CompiledRegion, image: Image, bias: int, maps: Sequence[Mapping]) -> None:
    """Raises Rejected(NOT_MOVABLE) where ``compiled`` would not work in another process. ``image``: the file;
    ``bias``: its load bias in the process that has ``maps``."""
    region, fixed = compiled.region, bias == 0
    own = own_memory(image, bias)
    _check_region(region, own, fixed)
    if region.single_threaded and not tells_threads(image):
        raise Rejected(Reason.NOT_MOVABLE, "nothing tells in a file whether the program has several threads")
    for number in _numbers(compiled):
        at = number % (1 << 64)
        if fixed and _inside(at, own):
            continue
        if at >= _LEAST_ADDRESS and any(m.start <= at < m.end for m in maps):
            raise Rejected(Reason.NOT_MOVABLE, f"{at:#x} is an address of this process")


def own_memory(image: Image, bias: int) -> list[tuple[int, int]]:
    """Where the segments of the file lie in a process."""
    return [(s.address + bias, s.end + bias) for s in image.segments if s.kind == PT_LOAD]


def _check_region(region: Region, own: Iterable[tuple[int, int]], fixed: bool) -> None:
    if any(has_calls(s.expression) for s in region.scop.statements):
        raise Rejected(Reason.NOT_MOVABLE, "it calls functions of other files")
    for address, data in region.code:
        if not any(low <= address and address + len(data) <= high for low, high in own):
            raise Rejected(Reason.NOT_MOVABLE, f"the code at {address:#x} is in another file")
    for guard in region.guards:
        if isinstance(guard, Progression):
            raise Rejected(Reason.NOT_MOVABLE, "it checks a table of pointers, which lie elsewhere in each process")
    locations = (*(x.location for x in region.live_ins), *(r.location for r in region.rejoin), *region.dead_stack_cells)
    for cell in (x for x in locations if isinstance(x, Cell) and x.base == ""):
        if not fixed or not _inside(cell.displacement, own):
            raise Rejected(Reason.NOT_MOVABLE, f"it reads memory at {cell.displacement:#x}")


def _inside(address: int, intervals: Iterable[tuple[int, int]]) -> bool:
    return any(low <= address < high for low, high in intervals)


def _numbers(compiled: CompiledRegion) -> Iterable[int]:
    """The immediate operands of the code, constants among it included."""
    for instruction in decode(compiled.code, compiled.placement.code):
        if instruction.mnemonic.startswith(("j", "call")):
            continue
        for found in _NUMBER.findall(instruction.operands_text):
            yield int(found, 16)


def tells_threads(image: Image) -> bool:
    """Whether the thread control block of a process of the file tells of threads: glibc keeps there whether a second
    one was ever started (``header.multiple_threads``, at fs:0x18)."""
    for segment in image.segments:
        if segment.kind == _PT_INTERP:
            try:
                return image.read(segment.offset, segment.file_size).endswith(_GLIBC)
            except ElfError:
                return False
    return False
