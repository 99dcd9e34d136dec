"""The loops that visit cells: each cell once, also where bounds are rounded, steps are wide, or two accesses meet."""

from __future__ import annotations

import pytest

from memopt.ir.cells import CellSet
from memopt.ir.linear import quotient
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Interval, Progression
from memopt.ir.scop import Dimension
from memopt.polyhedral.loop_ast import lines
from passes.version.cell_scan import _scan_nest, symbol_guards, words_of
from tests.support.header import linear

OUTER = Dimension("i", linear(R=1))


def table(*words: CellSet) -> Progression:
    return Progression(0x5000, 1, 16, words, Interval(linear(), linear()), "")


@pytest.mark.parametrize(("words", "loops"), [
    pytest.param((CellSet(linear(p=1, j=8), (OUTER, Dimension("j", quotient(linear(n=1, i=-1), 2)))),),
                 ["for c0 = 0 to sub(floor(p2, 2), 1) by 1", "  cells(c0)"], id="rounded"),
    pytest.param((CellSet(linear(p=1, i=16, j=8), (OUTER, Dimension("j", linear(2)))),),
                 ["for c0 = 0 to sub(mul(2, p0), 1) by 1", "  cells(c0)"], id="two counters"),
    pytest.param((CellSet(linear(p=1, i=16), (OUTER,)), CellSet(linear(8, p=1, i=16), (OUTER,))),
                 ["for c0 = 0 to sub(mul(2, p0), 1) by 1", "  cells(c0)"], id="two accesses"),
    pytest.param((CellSet(linear(p=1, i=16), (OUTER,)),
                  CellSet(linear(p=1, i=16), (OUTER, Dimension("j", linear(n=1))))),
                 ["for c0 = 0 to sub(sub(mul(2, p0), 1), 1) by 2", "  cells(c0)"], id="the same twice"),
])
def test_each_cell_is_visited_once(words: tuple[CellSet, ...], loops: list[str]) -> None:
    found = _scan_nest(words_of(table(*words)), ())
    assert found is not None
    assert lines(found[0]) == loops


def test_symbols_of_loops_are_bounded() -> None:
    cells = words_of(table(CellSet(linear(p=1, i=8), (OUTER, Dimension("j", linear(n=1))))))
    assert {s for g in symbol_guards([cells]) for s in g.expression.symbols} == {"R", "n"}
    with pytest.raises(Rejected) as refused:
        symbol_guards([words_of(table(CellSet(linear(p=1, i=8 << 20), (OUTER,))))])
    assert refused.value.reason is Reason.NO_SCHEDULE


def test_parts_of_words_are_refused() -> None:
    with pytest.raises(Rejected) as refused:
        words_of(table(CellSet(linear(p=1, i=12), (OUTER,))))
    assert refused.value.reason is Reason.DATA_DEPENDENT_ADDRESS
