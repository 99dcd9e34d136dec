"""Code pointers: from where may an indirect jump get the address of an instruction?

Example: ``switch (way)`` becomes ``lea rbx, [rip + table]; movsxd rax, [rbx + rax*4]; add rax, rbx; jmp rax``. The
address of each case is ``table`` plus a word of the table. A computed ``goto *labels[i]`` loads a word that is the
address itself.

In: the executable mapping, the data of the same file, as they are in the process; addresses of instructions. Out: where
one of them is named. Nothing is known about functions or about who jumps. All bytes are searched, so tables are found
in stripped programs and in code that no flow graph holds:

- the address itself: as a word of data, as an immediate operand, as the operand of a rip-relative ``lea``;
- a table of distances: it begins at an address that some ``lea`` or immediate operand names, and all its entries up to
  that one lead into the mapping (words of 4 bytes, of 8 bytes in the large code model);
- a distance from another label of the function, as in ``static const int ways[] = {&&a - &&base, ...}``.

Not found: distances of 1 or 2 bytes, and addresses that a program computes from others in further ways.
"""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Callable, Collection, Iterator, Sequence

from memopt.ir.frozen import dataclass

_MOST_ENTRIES = 4096
_NEAR = 64 << 10  # bytes from label to label of one function
_LOW = 1 << 31  # addresses below fit an immediate operand of 4 bytes
# e8: call rel32. ff /4: jmp through a register or memory; one through a fixed place of memory (rip-relative) is a jump
# to a function.
_CALL = re.compile(rb"\xe8(?=(....))", re.DOTALL)
_LEA = re.compile(rb"\x8d[\x05\x0d\x15\x1d\x25\x2d\x35\x3d](?=(....))", re.DOTALL)
_INDIRECT_JUMP = re.compile(rb"\xff[\x20-\x24\x26\x27\x60-\x67\xa0-\xa7\xe0-\xe7]")


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of the process and their address."""

    start: int
    content: bytes

    @property
    def end(self) -> int:
        return self.start + len(self.content)

    def __contains__(self, address: int) -> bool:
        return self.start <= address < self.end


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The surroundings of a loop, as far as jumps into it are concerned.

    ``closed``: all code of its function is known, and none of it jumps indirectly. ``extent``: of its function, if that
    is known. ``tables``: the addresses of
    indirect jumps whose tables are found (memopt.cfg.jump_tables). ``pads``: addresses at which the function goes on
    after exceptions. ``data``: reads the parts of the process that may hold tables or addresses of labels; asked only
    if needed.
    """

    closed: bool = True
    extent: tuple[int, int] | None = None
    tables: frozenset[int] = frozenset()
    pads: frozenset[int] = frozenset()
    data: Callable[[], tuple[Part, ...]] = tuple


def has_indirect_jump(code: bytes) -> bool:
    """Whether any bytes of ``code`` read as an indirect jump that may lead into the middle of a function."""
    return _INDIRECT_JUMP.search(code) is not None


def named(targets: Collection[int], text: Part, data: Sequence[Part], *, closed: bool,
          extent: tuple[int, int] | None = None) -> int | None:
    """The address of something that names one of ``targets``, None if nothing does.

    ``closed``: no jump that adds a distance to an address can lead to a target, so that such tables do not matter.
    ``extent``: of the function of the targets, if it is known.
    """
    if not targets:
        return None
    bases = _named_by_lea(text)
    found = next(_themselves(targets, text, data, bases), None)
    if found is not None or closed:
        return found
    starts = sorted({base for _, base in bases} | set(_immediates(text, (text, *data))))
    return next(_in_tables(targets, text, data, starts), None) or next(
        _from_labels(targets, data, _labels(text, starts, extent)), None)


def _themselves(targets: Collection[int], text: Part, data: Sequence[Part], bases: Sequence[tuple[int, int]]
                ) -> Iterator[int]:
    yield from (place for place, base in bases if base in targets)
    for target in targets:
        word = target.to_bytes(4, "little") if target < _LOW else target.to_bytes(8, "little")
        for part in (text, *data):
            at = part.content.find(word)
            if at >= 0:
                yield part.start + at


def _named_by_lea(text: Part) -> list[tuple[int, int]]:
    """``(place, address)`` of all bytes that read as ``lea r, [rip + ...]``."""
    return [(text.start + at.start(), text.start + at.start() + 6 + int.from_bytes(at[1], "little", signed=True))
            for at in _LEA.finditer(text.content)]


def _immediates(text: Part, parts: Sequence[Part]) -> list[int]:
    """All values of 4 bytes in ``text`` that are addresses in ``parts``: operands of code at low addresses."""
    import numpy

    low, high = min(p.start for p in parts), max(p.end for p in parts)
    if low >= _LOW:
        return []
    found = set[int]()
    for offset in range(4):
        words = numpy.frombuffer(text.content, numpy.uint32, (len(text.content) - offset) // 4, offset)
        found |= set(map(int, numpy.unique(words[(words >= low) & (words < high)])))
    return [value for value in found if any(value in part for part in parts)]


def _in_tables(targets: Collection[int], text: Part, data: Sequence[Part], starts: Sequence[int]) -> Iterator[int]:
    """The entries that lead to a target, in tables of distances from their own start."""
    following = dict(itertools.pairwise(starts))
    for part in (*data, text):
        for base in (start for start in starts if start in part):
            end = min(following.get(base, part.end), part.end)
            for size, form in ((4, "<i"), (8, "<q")):
                for at in range(base, min(end, base + size * _MOST_ENTRIES) - size + 1, size):
                    target = base + struct.unpack_from(form, part.content, at - part.start)[0]
                    if target not in text:
                        break
                    if target in targets:
                        yield at


def _labels(text: Part, named_there: Sequence[int], extent: tuple[int, int] | None) -> list[int]:
    """The addresses in ``text`` that are named and may be labels: in the middle of the function, if its extent is
    known; else those that no bytes call."""
    if extent is not None:
        return [address for address in named_there if extent[0] < address < extent[1]]
    called = {text.start + at.end() + 4 + int.from_bytes(at[1], "little", signed=True)
              for at in _CALL.finditer(text.content)}
    return [address for address in named_there if address in text and address not in called]


def _from_labels(targets: Collection[int], data: Sequence[Part], labels: Sequence[int]) -> Iterator[int]:
    """The words that hold the distance of a target from one of ``labels`` near by."""
    import numpy

    distances = sorted({t - b for t in targets for b in labels if 0 < abs(t - b) < _NEAR})
    for part in data if distances else ():
        for kind in (numpy.int32, numpy.int64):
            size = numpy.dtype(kind).itemsize
            skip = -part.start % size
            words = numpy.frombuffer(part.content, kind, max(0, len(part.content) - skip) // size, skip)
            hits = numpy.flatnonzero(numpy.isin(words, numpy.array(distances, kind)))
            if len(hits):
                yield part.start + skip + size * int(hits[0])
