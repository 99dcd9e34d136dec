"""Packed constants: cells next to each other that the nest only reads and that hold the same bits are read as one.

Vector code keeps a constant once for each lane, and loads it where calls or a lack of registers do not let it stay in
one. Reads of the first of these cells make the lanes copies of each other (memopt.lifting.reroll.isomorphism). The
region then relies on the cells being equal when it is entered, and on nothing it writes being among them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from memopt.ir.linear import Linear
from memopt.ir.scop import TRIPS
from memopt.lifting.demotion.aliasing import Aliasing
from memopt.lifting.demotion.scalar_expansion import is_private
from memopt.lifting.demotion.statements import CellStatement, ItemT, StatementLoop, statements_of
from memopt.lifting.reroll.proofs import CapturedState, Cell
from memopt.lifting.values.algebra import LOOP_COUNTER
from memopt.lifting.values.bounds import greatest, least

VECTOR = 64  # bytes of the widest vector


def unify_splats(loop: StatementLoop, aliasing: Aliasing, captured: CapturedState) -> StatementLoop:
    """``loop`` with reads of the first of neighbouring cells that hold the same and do not change."""
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
    """Cells at one place throughout that are read, and that nothing else in the nest overlaps at the captured values:
    neither what is written nor arrays that might be part of the same one."""
    accesses = {(a, e.size) for s in statements_of(loop) for a, e in zip(s.accesses, s.elements, strict=True)
                if not is_private(a)}
    written = {s.write for s in statements_of(loop)}
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
