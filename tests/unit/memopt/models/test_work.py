"""Work per outer iteration: constant in boxes, growing in triangles."""

from __future__ import annotations

import pytest

from memopt.ir.linear import Linear
from memopt.ir.scop import TRIPS, Access, Constant, Dimension, Scop, Statement
from memopt.models.work import Work


def nest(*trips: Linear) -> Scop:
    dimensions = (Dimension("i", Linear.symbol(TRIPS)), *(Dimension(n, t) for n, t in zip("jk", trips, strict=False)))
    write = Access("A", (Linear.symbol("i"),))
    return Scop((), (Statement("S0", dimensions, write, (), Constant(0), (0,) * (len(trips) + 2)),))


def test_every_iteration_of_a_box_is_alike() -> None:
    work = Work(nest(Linear.of(7), Linear.of(5)), {TRIPS: 100})
    assert work.mean == work.per_iteration(3, 4) == 35
    assert work.even


def test_a_triangle_grows() -> None:
    work = Work(nest(Linear.symbol("i")), {TRIPS: 101})
    assert work.mean == pytest.approx(50)
    assert work.per_iteration(0, 11) == pytest.approx(5)
    assert not work.even


def test_a_triangle_that_shrinks_to_nothing() -> None:
    work = Work(nest(Linear.symbol("i", -1) + Linear.symbol("n")), {TRIPS: 11, "n": 10})
    assert work.per_iteration(10, 1) == 1.0  # never zero: it is divided by
    assert work.mean == pytest.approx(5)
