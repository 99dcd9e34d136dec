"""Guards that no write hits a cell that stays fixed while others move, such as a pivot's row or column.

Example: ``for (j = k + 1; j < n; j++) A[:, j] -= A[:, k] * r[j];``. Machine code counts the iterations down to the last
column. Column k then differs from all columns j only because of the number of columns, which nothing proves.

In: the SCoP, the bounds known from other guards, the captured values. Out: a guard for each pair of a write and another
access whose subscripts never meet at the captured values, in one dimension in which only one of them moves. Without it
the pivot might be written while it is read, and hardly any order of the iterations would be legal.
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
    """Guards that cells which do not coincide at the captured values ``sample`` do not coincide at other sizes either.
    """
    placed = [(s, a) for s in scop.statements for a in (s.write, *s.reads) if not scop.array(a.array).private]
    written = [(s, s.write) for s in scop.statements]
    for one, two in product(written, placed):
        if one[1].array == two[1].array and one[1] != two[1]:
            found = list(_gaps(one, two, sample))
            if found and not any(g.is_constant or proved(g, limits) for g in found):
                yield Relation(found[0], False, "cells that are read are not those that are written")


def _gaps(one: _Placed, two: _Placed, sample: Mapping[str, int]) -> Iterator[Linear]:
    """Expressions that are >= 0 at ``sample``, and at other sizes only where no instance of ``one`` accesses a cell of
    ``two``: the gap between their subscripts, in a dimension in which one of them stays where it is."""
    ranges = {d.name: d.trips - 1 for s, _ in (one, two) for d in s.dimensions}
    for first, second in zip(one[1].subscripts, two[1].subscripts, strict=True):
        if first.symbols.isdisjoint(ranges) or second.symbols.isdisjoint(ranges):
            difference = first - second
            try:
                gaps = least(difference, ranges) - 1, -greatest(difference, ranges) - 1
            except Rejected:
                continue
            yield from (g for g in gaps if g.symbols.isdisjoint(ranges) and g.evaluate(sample) >= 0)
