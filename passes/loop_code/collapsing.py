"""Loop collapsing: short rows that are contiguous in memory become one long vector dimension.

Example: ``for (i < n) for (c < 3) to[3*i + c] = ...`` becomes ``for (v < 3*n) to[v] = ...`` with v = 3*i + c. Such rows
are pixels of a few channels, complex numbers, or small vectors in structures. Alone they do not fill a vector.

In: the shape of a leaf. Out: the shape without its row axis, or the same shape where rows cannot be collapsed. It is
legal because the rows and lanes of a macro instance are independent and may run in any order (memopt.ir.plan).
"""

from __future__ import annotations

from dataclasses import replace

from memopt.ir.plan import MOST_LANES
from passes.loop_code.leaf_shape import Along, LeafShape


def collapsed(shape: LeafShape) -> LeafShape:
    """``shape`` with its rows collapsed into the vector axis, or ``shape`` itself where that is not possible.

    It is possible where every row has the same constant number of lanes, at most ``MOST_LANES``, and every address
    moves from row to row by exactly that number of lanes.
    """
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
    """The first lane and the number of lanes, if these are constants and the same in every row; else None."""
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
    """``bound`` over the collapsed lanes v, counted from 0: a bound on the row r = floor(v / count) becomes one on v.
    """
    if not bound.row:
        return bound
    return Along(0, bound.row, 0, bound.rest * count + (count - 1 if bound.row < 0 else 0))
