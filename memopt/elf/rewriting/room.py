"""Where the new code and its zeroed memory will lie, before the file is written.

In: an image, and the most bytes of state that will be asked for. Out: a ``Room`` with link-time addresses. They do not
depend on the sizes of code, record and state, so code can be assembled for them first.

The state is .bss made longer: the last segment in memory, where it is writable, gets a larger memory size. The code
follows ``state_limit`` bytes behind it, on a page of its own. What is not used of these bytes is a gap without memory,
but it counts as address space (RLIMIT_AS) when the file is loaded. So whoever knows the size of the state gives it:
code may be assembled for the default limit first, and once more when the size is known.
"""

from __future__ import annotations

from dataclasses import dataclass

from memopt.elf.image import PF_W, PF_X, PT_LOAD, ElfError, Image
from memopt.elf.rewriting.growth import PAGE, checked_load_order
from memopt.elf.rewriting.record import HEADER_SIZE

ALIGNMENT = 64
STATE_LIMIT = 32 << 20
_ADDRESSES = 1 << 47
_PT_GNU_RELRO = 0x6474E552


@dataclass(frozen=True, slots=True)
class Room:
    """Link-time addresses, multiples of 64: where the code of versions begins, and where the zeroed memory begins.

    ``own_segment``: the state gets a segment of its own, because the file ends without writable memory.
    """

    code: int
    state: int
    own_segment: bool

    @property
    def segment(self) -> int:
        """The address of the new segment, whose first bytes are the header of the record."""
        return self.code - HEADER_SIZE


def room(image: Image, state_limit: int = STATE_LIMIT) -> Room:
    """The place for new code and up to ``state_limit`` bytes of state in ``image``.

    Raises ``NotRewritable(FILE_LAYOUT)``, and ``ElfError`` for malformed files.
    """
    checked_load_order(image)
    last = max((s for s in image.segments if s.kind == PT_LOAD), key=lambda s: s.end)
    own_segment = last.flags & (PF_W | PF_X) != PF_W
    # What the dynamic linker makes read-only at the end of relocation may reach beyond the last variable.
    end = max((s.end for s in image.segments if s.kind in (PT_LOAD, _PT_GNU_RELRO)), default=0)
    state = _aligned(end, PAGE if own_segment else ALIGNMENT)
    if not 0 <= state_limit < _ADDRESSES or state >= _ADDRESSES:
        raise ElfError("its program headers are malformed")
    return Room(_aligned(state + state_limit, PAGE) + HEADER_SIZE, state, own_segment)


def _aligned(value: int, alignment: int) -> int:
    return -(-value // alignment) * alignment
