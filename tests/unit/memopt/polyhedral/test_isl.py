from __future__ import annotations

from dataclasses import replace

import pytest

from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.polyhedral.isl import (
    IntegerMap,
    IntegerSet,
    Polyhedron,
    budget,
    instances,
    iterations,
    no_pairs,
    no_points,
    patience,
)
from tests.support.nests import region


def test_equality_is_of_sets_not_of_texts() -> None:
    first, second = IntegerSet.parse("{ S[i] : 0 <= i < 5 }"), IntegerSet.parse("{ S[j] : j >= 0 and j <= 4 }")
    assert first == second
    assert first != IntegerSet.parse("{ S[i] : 0 <= i < 6 }")
    assert first != IntegerSet.parse("{ T[i] : 0 <= i < 5 }")
    with pytest.raises(TypeError):
        hash(first)


def test_text_form_round_trips() -> None:
    pairs = IntegerMap.parse("[R] -> { S[i, j] -> S[i, j'] : 0 <= i < R and j < j' <= 9 and j >= 0 }")
    assert IntegerMap.parse(str(pairs)) == pairs
    points = IntegerSet.parse("{ S[i] : exists q : i = 3q and 0 <= i < 20 }")
    assert IntegerSet.parse(str(points)) == points


def test_algebra() -> None:
    low, high = IntegerSet.parse("{ S[i] : 0 <= i < 5 }"), IntegerSet.parse("{ S[i] : 3 <= i < 8 }")
    assert low | high == IntegerSet.parse("{ S[i] : 0 <= i < 8 }")
    assert low & high == IntegerSet.parse("{ S[3]; S[4] }")
    assert low - high <= low
    assert not low <= high
    assert no_points().is_empty
    step = IntegerMap.parse("{ S[i] -> S[i + 1] }")
    assert step.then(step).differences == IntegerSet.parse("{ S[2] }")
    assert step.inverse.restricted(low) - step.inverse == no_pairs()
    assert (step & step.inverse).is_empty
    order = IntegerMap.parse("{ S[i, j] -> [j, i] }").before()
    assert IntegerMap.parse("{ S[5, 0] -> S[0, 1] }") <= order
    assert not IntegerMap.parse("{ S[0, 1] -> S[5, 0] }") <= order


def test_budget_rejects_and_leaves_isl_usable() -> None:
    with pytest.raises(Rejected) as refusal, budget(3):
        IntegerSet.parse("{ S[i, j] : exists k : 0 <= i < 3k < 1000 and j = 7k and i > 2j - 5000 }")
    assert refusal.value.reason is Reason.NO_SCHEDULE
    assert not IntegerSet.parse("{ S[i, j] : 0 <= i < 3j < 1000 }").is_empty


def test_patience_ends_with_the_question_after_it_is_lost() -> None:
    line, left = Polyhedron.build(("i",), ()), iter((True, False))
    with patience(lambda: next(left)):
        line = line.where(nonnegative=[Linear.symbol("i")])
        with pytest.raises(Rejected) as refusal:
            line.where(nonnegative=[Linear.symbol("i") - 1])
    assert refusal.value.reason is Reason.NO_SCHEDULE
    assert not line.where(nonnegative=[Linear.symbol("i") - 1]).is_empty


def test_budget_does_not_hide_mistakes() -> None:
    with pytest.raises(Exception, match="syntax error") as mistake, budget():
        IntegerSet.parse("{ S[")
    assert not isinstance(mistake.value, Rejected)


def test_numbers_beyond_64_bits_are_refused() -> None:
    with pytest.raises(Rejected):
        Polyhedron.build(("i",), (), nonnegative=(Linear.symbol("i", 1, 1 << 63),))
    assert not Polyhedron.build(("i",), (), nonnegative=(Linear.symbol("i", 1, (1 << 63) - 1),)).is_empty


def test_iterations_under_conditions() -> None:
    i, j, size = Linear.symbol("i"), Linear.symbol("j"), Linear.symbol("n")
    triangle = [("i", size), ("j", i + 1)]
    assert not iterations(triangle, [j - 3]).is_empty
    assert iterations(triangle, [j - i - 1]).is_empty
    assert iterations([("j", Linear.of(3))], [j - 3]).is_empty
    assert iterations([("j", Linear.of(3))], [j - 1]).most(j) == 2


def test_nothing_bounds_a_symbol_that_the_points_are_not_about() -> None:
    """Random nest 9951150 at gcc -O1 asked for that."""
    points, other = iterations([("j", Linear.of(3))], ()), Linear.symbol("n")
    assert points.least(Linear.symbol("j") + other) is None
    assert points.most(other) is None
    assert points.least(Linear.symbol("j") + other - other) == 0


def test_cells_may_depend_on_what_no_bound_names() -> None:
    """``B[i - n, j]`` is ``B[j, i]`` for some n, and ``B[i - n, j + 9]`` never."""
    (statement,) = region("for i < R\n  for j < 5\n    B[i,j] = add(B[i,j], B[j,i])", {"B": (20, 20)}).scop.statements
    row, column = statement.write.subscripts
    cell = (row - Linear.symbol("n"), column)
    moved = replace(statement, write=replace(statement.write, subscripts=cell))
    for other, meets in (((column, row), True), ((row, column + 9), False)):
        equal = [a - b for a, b in zip(cell, other, strict=True)]
        assert instances(moved).where(equal=equal).is_empty is not meets
