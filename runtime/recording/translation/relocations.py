"""Relocations of a copy: the words in it that depend on where the copy, its original and the shared routines lie.

Example: ``mov rax, [rip + 0x100]`` in a copy holds the distance from the copy to a variable. In another process the
library of the variable lies elsewhere, and so does the copy: the distance is computed anew, and all else stays.

In: a copy as it was made, and where it was. Out: the words as offsets in the copy and values without these addresses;
the bytes of many copies at another place.

Invariant: a copy that has been moved is the one that a translation at its place would have made.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import numpy
from numpy.typing import NDArray

from memopt.ir.frozen import dataclass
from memopt.ir.reasons import Reason, Rejected

_Integers = NDArray[numpy.int64]


class Of(Enum):
    """What a word depends on. DISTANCE_*: 32 bits, the distance from behind the word to an original address, or to a
    shared routine. ORIGINAL, MINUS_ORIGINAL, COPY: 64 bits, the address, or minus it.
    """

    DISTANCE_TO_ORIGINAL = "distance to an original address"
    DISTANCE_TO_ROUTINE = "distance to a routine"
    ORIGINAL = "original address"
    MINUS_ORIGINAL = "minus an original address"
    COPY = "address of a copy"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a copy lies: its own address, the load bias of its original, the address of the routines."""

    start: int
    bias: int
    routines: int


@dataclass(frozen=True, slots=True)
class Relocations:
    """By kind: offsets in the code, and values for a copy at a place of zeros."""

    words: dict[Of, tuple[_Integers, _Integers]]


def _part(kind: Of, place: Place) -> int:
    """What the addresses of a place contribute to a word."""
    return {Of.DISTANCE_TO_ORIGINAL: place.bias - place.start, Of.DISTANCE_TO_ROUTINE: place.routines - place.start,
            Of.ORIGINAL: place.bias, Of.MINUS_ORIGINAL: -place.bias, Of.COPY: place.start}[kind]


def _size(kind: Of) -> int:
    return 4 if kind in (Of.DISTANCE_TO_ORIGINAL, Of.DISTANCE_TO_ROUTINE) else 8


def relocations(code: bytes, marks: Sequence[tuple[int, Of]], place: Place) -> Relocations:
    """The relocations of ``code``, which was made for ``place``. ``marks``: offsets of words, with their kinds."""
    words = {}
    for kind in Of:
        offsets = [offset for offset, of in marks if of is kind]
        size = _size(kind)
        values = [int.from_bytes(code[o:o + size], "little", signed=True) - _part(kind, place) for o in offsets]
        words[kind] = numpy.array(offsets, numpy.int64), numpy.array(values, numpy.int64)
    return Relocations(words)


def joined(codes: Sequence[tuple[int, bytes, Relocations]], size: int) -> tuple[NDArray[numpy.uint8], Relocations]:
    """One block of ``size`` bytes with several copies, each at its offset, and the relocations of the block."""
    block = numpy.zeros(size, numpy.uint8)
    for offset, code, _ in codes:
        block[offset:offset + len(code)] = numpy.frombuffer(code, numpy.uint8)
    words = {}
    for kind in Of:
        shift = {Of.COPY: 1, Of.ORIGINAL: 0, Of.MINUS_ORIGINAL: 0}.get(kind, -1)
        found = [(offset, *made.words[kind]) for offset, _, made in codes if len(made.words[kind][0])]
        none = numpy.zeros(0, numpy.int64)
        words[kind] = (numpy.concatenate([none, *(offsets + at for at, offsets, _ in found)]),
                       numpy.concatenate([none, *(values + shift * at for at, _, values in found)]))
    return block, Relocations(words)


def moved_to(block: NDArray[numpy.uint8], made: Relocations, place: Place) -> bytearray:
    """The bytes of a block at a place. Raises Rejected(NO_ROOM) if a distance is too large."""
    code = block.copy()
    for kind, (offsets, values) in made.words.items():
        size, found = _size(kind), values + _part(kind, place)
        if size == 4 and len(found) and not (found.min() >= -(1 << 31) and found.max() < 1 << 31):
            raise Rejected(Reason.NO_ROOM, "a copy is out of reach of its original")
        code[offsets[:, None] + numpy.arange(size)] = found.astype("<i8").view(numpy.uint8).reshape(-1, 8)[:, :size]
    return bytearray(code.tobytes())
