"""Rows copied in overlapping pieces: one loop over the row where the pieces are the row, and only then."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from memopt.ir.linear import Linear, quotient
from memopt.ir.scop import ElementType, Read
from memopt.lifting.demotion.aliasing import Aliasing
from memopt.lifting.demotion.statements import CellStatement, StatementItem, StatementLoop
from memopt.lifting.reroll.overlapping_copies import whole_rows

R, ROW, J = Linear.symbol("R"), Linear.symbol("c:i"), Linear.symbol("c:j")
FAR = 1 << 20


def copy(write: Linear, shift: int) -> CellStatement:
    return CellStatement(write, (write + shift,), Read(0), ElementType.F32, 0)


def row(length: int, shift: int, middle: int = 0, end: int = 0) -> StatementLoop:
    """``length`` floats of rows that begin at 4, 4 + 4 * length, ...: two at each end, the aligned words between; the
    words begin ``middle`` bytes later, the last ones ``end`` bytes."""
    start = ROW * (4 * length) + 4
    aligned = quotient(start + 8, 8) * 8
    words = quotient(start - aligned + 4 * length, 8)
    inner = tuple(copy(aligned + middle + J * 8 + 4 * n, shift) for n in range(2))
    last = start + (4 * length - 8) + end
    return StatementLoop("c:i", R, (copy(start, shift), copy(start + 4, shift), copy(last, shift),
                                    copy(last + 4, shift), StatementLoop("c:j", words, inner)))


def joined(loop: StatementLoop) -> StatementLoop:
    return whole_rows(loop, Aliasing({"c:i": R - 1}, {"R": 9}))[0]


def executed(item: StatementItem, values: dict[str, int], memory: dict[int, int]) -> Iterator[int]:
    """Runs ``item`` on ``memory``, whose cells hold their own addresses at first; gives what it writes."""
    if isinstance(item, CellStatement):
        read, write = item.reads[0].evaluate(values), item.write.evaluate(values)
        memory[write] = memory.get(read, read)
        yield write
        return
    for number in range(item.trips.evaluate(values)):
        for inner in item.items:
            yield from executed(inner, values | {item.counter: number}, memory)


@pytest.mark.parametrize("shift", [FAR, -FAR, 3200])
@pytest.mark.parametrize("length", [5, 6, 51, 100])
def test_pieces_of_a_row_are_the_row(length: int, shift: int) -> None:
    before, after = row(length, shift), joined(row(length, shift))
    assert len(after.items) == 1
    first: dict[int, int] = {}
    second: dict[int, int] = {}
    written = list(executed(before, {"R": 8}, first))
    again = list(executed(after, {"R": 8}, second))
    assert first == second
    assert sorted(again) == sorted(set(written))


@pytest.mark.parametrize("changes", [{"middle": 8}, {"middle": -16}, {"end": 8}, {"end": 2}])
def test_pieces_with_a_gap_stay(changes: dict[str, int]) -> None:
    loop = row(51, FAR, **changes)
    assert joined(loop) == loop


@pytest.mark.parametrize("shift", [8, -4, 100])
def test_a_row_copied_onto_itself_stays(shift: int) -> None:
    assert joined(row(51, shift)) == row(51, shift)
