"""The dependences of a trace by a plain model, which keeps whole iteration vectors and looks at each byte."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from memopt.traces.core.format import Access, AccessShape, BlockShape
from memopt.traces.dependences.dependences import Dependences, Kind
from tests.support.drawn_traces import Vector

Found = dict[tuple[Kind, Access, Access, tuple[int, int] | None], tuple[int, int]]


@dataclass
class Model:
    """Dependences of the bytes that ``access`` is told of."""

    found: Found = field(default_factory=dict)
    counts: Counter[tuple[Kind, Access, Access, tuple[int, int] | None]] = field(default_factory=Counter)
    written: dict[int, tuple[Access, Vector, int]] = field(default_factory=dict)
    read: dict[int, dict[Access, list[tuple[Vector, int]]]] = field(default_factory=dict)

    def access(self, shape: AccessShape, place: Access, address: int, vector: Vector, run: int) -> None:
        for byte in range(address, address + shape.size):
            if shape.reads:
                if byte in self.written:
                    source, before, _ = self.written[byte]
                    self._add(Kind.RAW, source, place, before, vector)
                times = self.read.setdefault(byte, {}).setdefault(place, [])
                times[:] = [*times[:1], (vector, run)]
            if shape.writes:
                if byte in self.written:
                    source, before, _ = self.written[byte]
                    self._add(Kind.WAW, source, place, before, vector)
                for source, times in self.read.pop(byte, {}).items():
                    for before, when in times:
                        if not (shape.reads and source == place and when == run):
                            self._add(Kind.WAR, source, place, before, vector)
                self.written[byte] = place, vector, run

    def _add(self, kind: Kind, source: Access, sink: Access, before: Vector, now: Vector) -> None:
        carrier, distance = None, 0
        for one, other in zip(before, now, strict=False):
            if one[:2] != other[:2]:
                break
            if one[2] != other[2]:
                carrier, distance = other[0], other[2] - one[2]
                break
        least, most = self.found.get((kind, source, sink, carrier), (distance, distance))
        self.found[kind, source, sink, carrier] = min(least, distance), max(most, distance)
        self.counts[kind, source, sink, carrier] += 1

    def counted(self, shapes: Sequence[BlockShape]) -> dict[tuple[Kind, Access, Access, tuple[int, int] | None], int]:
        """Bytes, by the size of the smaller access."""
        size = {place: shapes[place.block].accesses[place.index].size for _, *both, _ in self.counts for place in both}
        return {key: math.ceil(count / min(size[key[1]], size[key[2]])) for key, count in self.counts.items()}


def found_in(seen: Dependences) -> Found:
    """What an analysis found, in the model's form: the least and the largest distance of each dependence."""
    return {(d.kind, d.source, d.sink, d.carrier): (d.least, d.most) for d in seen.all()}


def counts_in(seen: Dependences) -> dict[tuple[Kind, Access, Access, tuple[int, int] | None], int]:
    """How often each dependence was found."""
    return {(d.kind, d.source, d.sink, d.carrier): d.count for d in seen.all()}
