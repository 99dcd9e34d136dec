"""Splat constants: vector code keeps a constant once for each lane; such adjacent, equal cells are read as one.

Example: ``mulpd xmm0, [rip + two]`` with ``two: .double 2.0, 2.0``. If both lanes read the first cell, they are
isomorphic (memopt.lifting.reroll.isomorphism). Constants are loaded like this where calls or a lack of registers keep
them out of registers.

In: a ``StatementLoop`` and the captured state. Out: one that reads the first of such cells. Sound because the region
then guards that the cells are equal at entry, and that nothing it writes is among them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from memopt.ir.linear import Linear
from memopt.ir.scop import TRIPS, plain_reads
from memopt.lifting.demotion.aliasing import Aliasing
from memopt.lifting.demotion.scalar_expansion import is_private
from memopt.lifting.demotion.statements import CellStatement, ItemT, StatementLoop, statements_of
from memopt.lifting.reroll.proofs import CapturedState, Cell
from memopt.lifting.values.algebra import LOOP_COUNTER
from memopt.lifting.values.bounds import greatest, least

VECTOR = 64  # bytes of the widest vector


def unify_splats(loop: StatementLoop, aliasing: Aliasing, captured: CapturedState) -> StatementLoop:
    """``loop`` with reads of the first of adjacent cells that hold the same bits and do not change. ``captured`` is
    told what that relies on.
    """
    cells = sorted(_unchanging(loop, aliasing), key=lambda c: (str(c[0].terms), c[1], c[0].constant))
    chosen: dict[Linear, Linear] = {}
    first: list[tuple[Cell, int]] = []
    for cell in cells:
        held = captured.bits(cell)
        same = next((one for one, bits in first if bits == held and one[1] == cell[1] and _near(one, cell)), None)
        if held is None:
            continue
        if same is None:
            first.append((cell, held))
        else:
            captured.same_cells(same, cell)
            chosen[cell[0]] = same[0]
    return _reading(loop, chosen) if chosen else loop


def _near(one: Cell, two: Cell) -> bool:
    distance = two[0] - one[0]
    return distance.is_constant and abs(distance.constant) < VECTOR and distance.constant % one[1] == 0


def _unchanging(loop: StatementLoop, aliasing: Aliasing) -> Iterator[Cell]:
    """Cells that are read at one address throughout and that nothing else in the nest overlaps at the captured values:
    no write, and no other access, with which they might be one array."""
    accesses = {(a, e.size) for s in statements_of(loop) for a, e in zip(s.accesses, s.elements, strict=True)
                if not is_private(a)}
    written = {s.write for s in statements_of(loop)}
    # No guard may read a cell that the original may pass over.
    written |= {a for s in statements_of(loop) for n, a in enumerate(s.reads) if n not in plain_reads(s.expression)}
    spans = {(a, size): (least(a, aliasing.ranges).evaluate(aliasing.sample),
                         greatest(a, aliasing.ranges).evaluate(aliasing.sample) + size) for a, size in accesses}
    for cell, (low, high) in spans.items():
        fixed = not any(s == TRIPS or s.startswith(LOOP_COUNTER) for s in cell[0].symbols)
        if fixed and cell[0] not in written and not any(
                start < high and low < end for other, (start, end) in spans.items() if other != cell):
            yield cell


def _reading(item: ItemT, chosen: dict[Linear, Linear]) -> ItemT:
    if isinstance(item, CellStatement):
        return replace(item, reads=tuple(chosen.get(r, r) for r in item.reads))
    return replace(item, items=tuple(_reading(i, chosen) for i in item.items))
