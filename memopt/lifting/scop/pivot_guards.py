"""Fixed cells beside moving ones: a pivot's row or column is none of those that the loop writes.

``for j > k: A[:, j] -= A[:, k] * r[j]`` counts its iterations down to the last column: that column k is not among those
written follows from how many there are, which nothing proves. At the captured values it is true, and becomes a guard;
without it the pivot might be written while it is read, and hardly any order would be legal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from memopt.ir.linear import Linear
from memopt.ir.reasons import Rejected
from memopt.ir.region import Relation
from memopt.ir.scop import Access, Scop, Statement
from memopt.lifting.values.bounds import Limits, greatest, least, proved

_Placed = tuple[Statement, Access]


def disjoint_cells(scop: Scop, limits: Limits, sample: Mapping[str, int]) -> Iterator[Relation]:
    """What makes sure that cells which are apart at the captured values ``sample`` are so for all sizes."""
    placed = [(s, a) for s in scop.statements for a in (s.write, *s.reads) if not scop.array(a.array).private]
    written = [(s, s.write) for s in scop.statements]
    for one, two in product(written, placed):
        if one[1].array == two[1].array and one[1] != two[1]:
            found = list(_gaps(one, two, sample))
            if found and not any(g.is_constant or proved(g, limits) for g in found):
                yield Relation(found[0], False, "cells that are read are not those that are written")


def _gaps(one: _Placed, two: _Placed, sample: Mapping[str, int]) -> Iterator[Linear]:
    """What is >= 0 only where no instance of ``one`` is at a cell of ``two``, and is at ``sample``: in one dimension
    the one stays where it is, and the other moves."""
    ranges = {d.name: d.trips - 1 for s, _ in (one, two) for d in s.dimensions}
    for first, second in zip(one[1].subscripts, two[1].subscripts, strict=True):
        if first.symbols.isdisjoint(ranges) or second.symbols.isdisjoint(ranges):
            difference = first - second
            try:
                gaps = least(difference, ranges) - 1, -greatest(difference, ranges) - 1
            except Rejected:
                continue
            yield from (g for g in gaps if g.symbols.isdisjoint(ranges) and g.evaluate(sample) >= 0)
