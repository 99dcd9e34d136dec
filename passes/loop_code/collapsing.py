"""Rows that follow each other in memory as one long vector dimension.

Before: rows i < n, lanes c < 3, ``to[3*i + c]``. After: lanes v = 3*i + c < 3*n, ``to[v]``: pixels of a few channels,
pairs of real and imaginary parts, small vectors in structures.

Legality: rows and lanes of a macro instance are independent of each other and may run in any order (memopt.ir.plan).
"""

from __future__ import annotations

from dataclasses import replace

from memopt.ir.plan import MOST_LANES
from passes.loop_code.leaf_shape import Along, LeafShape


def collapsed(shape: LeafShape) -> LeafShape:
    """``shape`` with lanes only where all its rows have the same ones, as many as its addresses go on by from row to
    row; else ``shape``."""
    lanes = _lanes(shape)
    if lanes is None:
        return shape
    first, count = lanes
    everything = (shape.write.address, *(r.address for r in shape.reads), *shape.indices.values())
    if any(a.row != count * a.vector for a in everything):
        return shape

    def moved(along: Along) -> Along:
        return replace(along, row=0, rest=along.rest + along.vector * first)

    return replace(
        shape, leaf=replace(shape.leaf, rows=None, row_count=1),
        bounds=tuple(_of_lanes(b, count) for b in shape.bounds if not b.vector),
        write=replace(shape.write, address=moved(shape.write.address)),
        reads=tuple(replace(r, address=moved(r.address)) for r in shape.reads),
        indices={node: moved(along) for node, along in shape.indices.items()})


def _lanes(shape: LeafShape) -> tuple[int, int] | None:
    """The first lane and how many there are, when every row has the same."""
    if shape.leaf.rows is None or shape.leaf.vector is None:
        return None
    lows = [b.rest.constant for b in shape.bounds if b.vector == 1]
    highs = [b.rest.constant for b in shape.bounds if b.vector == -1]
    of_lanes = [b for b in shape.bounds if b.vector]
    if len(of_lanes) != 2 or len(lows) != 1 or len(highs) != 1:
        return None
    if any(b.row or b.sequential or not b.rest.is_constant for b in of_lanes):
        return None
    if any(abs(b.row) > 1 or (b.row and b.sequential) for b in shape.bounds):
        return None
    count = highs[0] + lows[0] + 1
    return (-lows[0], count) if 1 < count <= MOST_LANES else None


def _of_lanes(bound: Along, count: int) -> Along:
    """``bound``, on rows alone if on them, for lanes numbered from 0 on: ``r = floor(v / count)``."""
    if not bound.row:
        return bound
    return Along(0, bound.row, 0, bound.rest * count + (count - 1 if bound.row < 0 else 0))
