"""Cell sets: the addresses they stand for, counted out by hand."""

from __future__ import annotations

import itertools

import pytest

from memopt.ir.cells import CellSet
from memopt.ir.linear import Linear
from memopt.ir.scop import Dimension


def linear(constant: int = 0, **terms: int) -> Linear:
    return Linear.build(terms, constant)


def brute(cells: CellSet, values: dict[str, int]) -> set[int]:
    found = set()
    names = [d.name for d in cells.dimensions]
    for point in itertools.product(range(12), repeat=len(names)):
        known = {**values, **dict(zip(names, point, strict=True))}
        if all(e.evaluate(known) >= 0 for e in cells.domain()):
            found.add(cells.address.evaluate(known))
    return found


@pytest.mark.parametrize("cells", [
    CellSet(linear(p=1, i=8), (Dimension("i", linear(R=1)),)),
    CellSet(linear(p=1, k=8), (Dimension("i", linear(R=1)), Dimension("j", linear(n=1)), Dimension("k", linear(3)))),
    CellSet(linear(p=1, j=8), (Dimension("i", linear(R=1)), Dimension("j", linear(i=1)))),
    CellSet(linear(p=1, i=8), (Dimension("i", linear(R=1)), Dimension("j", linear(-2, i=1)))),
    CellSet(linear(p=1, i=8), (Dimension("i", linear(R=1)), Dimension("j", linear(-9, n=1)))),
    CellSet(linear(p=1, i=8), (Dimension("i", linear(R=1)),), (linear(3, i=-1),)),
    CellSet(linear(p=1, j=8, R=-8), (Dimension("i", linear(R=1)), Dimension("j", linear(5))), (linear(-4, i=1, j=1),)),
])
@pytest.mark.parametrize("trips", [1, 4, 6])
def test_addresses_are_those_of_the_points(cells: CellSet, trips: int) -> None:
    values = {"p": 1 << 40, "n": 4, "R": trips + 1, "H": trips}
    assert cells.addresses(values) == brute(cells, values)


def test_loops_that_no_address_depends_on_are_not_counted_out() -> None:
    many = (Dimension("i", linear(R=1)), Dimension("j", linear(1 << 60)), Dimension("k", linear(1 << 60)))
    assert len(CellSet(linear(i=8), many).addresses({"H": 9})) == 9


def test_symbols_are_those_that_need_a_value() -> None:
    cells = CellSet(linear(p=1, i=8), (Dimension("i", linear(R=1)), Dimension("j", linear(n=1))), (linear(i=1, m=1),))
    assert cells.symbols == {"p", "R", "n", "m"}
    assert cells.base == linear(p=1)
