"""tests/support/surroundings/stores.py against an interpreter of nests: which iteration stores to a cell last."""

from __future__ import annotations

from collections.abc import Iterator

import numpy
import pytest

from memopt.ir.linear import Linear
from tests.support.random_nests.chosen import chosen
from tests.support.random_nests.program import Access, Assign, If, Loop, Node, Program, layout, references, strides
from tests.support.surroundings.draw import draw
from tests.support.surroundings.stores import NOBODY, last_stores, outer_values

MOST_ITERATIONS = 12  # of the outermost loop are interpreted

Values = dict[str, int]


@pytest.mark.parametrize("name", ["triangle", "condition", "jacobi", "backwards", "summed product", "columns"])
def test_chosen_nests(name: str) -> None:
    _check(chosen([name])[name])


@pytest.mark.parametrize("seed", [3, 6, 7, 8, 9, 12])
def test_drawn_nests(seed: int) -> None:
    _check(draw(seed).nest)


def _check(nest: Program) -> None:
    """A cell that is stored to in the first iterations is not said to be done before, nor to belong to nobody."""
    arguments = nest.arguments(0)
    made = layout(nest)
    found = last_stores(nest, 0)
    expected = [numpy.full(len(f), NOBODY) for f in found]
    loop, = nest.body
    assert isinstance(loop, Loop)
    values = list(_values(loop, arguments))
    assert list(outer_values(nest, 0)) == values
    for number, value in enumerate(values[:MOST_ITERATIONS], 1):
        for access, stored, inner in _accesses(loop.body, arguments | {loop.var: value}):
            array = nest.array(access.array)
            region, offset = made.pointers[0][access.array]
            place = offset // array.element_size + sum(
                _value(s, inner) * by for s, by in zip(access.subscripts, strides(array, arguments), strict=True))
            expected[region][place] = max(expected[region][place], number if stored else 0)
    for one, two in zip(expected, found, strict=True):
        assert (one == two).all() if len(values) <= MOST_ITERATIONS else (one <= two).all()


def _accesses(body: tuple[Node, ...], values: Values) -> Iterator[tuple[Access, bool, Values]]:
    for node in body:
        match node:
            case Loop():
                for value in _values(node, values):
                    yield from _accesses(node.body, values | {node.var: value})
            case If(then=then, otherwise=otherwise, test=test) if test:
                yield from _accesses((*then, *otherwise), values)
            case If(linear, relation, then, otherwise):
                value = _value(linear, values)
                holds = {">=": value >= 0, "==": value == 0, "!=": value != 0}[relation]
                yield from _accesses(then if holds else otherwise, values)
            case Assign(target, value):
                yield target, True, values
                yield from ((a, False, values) for a in references(value))


def _values(loop: Loop, values: Values) -> range:
    lower, upper = _value(loop.lower, values), _value(loop.upper, values)
    if loop.upper2 is not None:
        upper = min(upper, _value(loop.upper2, values))
    return range(upper - 1, lower - 1, loop.step) if loop.step < 0 else range(lower, upper, loop.step)


def _value(linear: Linear, values: Values) -> int:
    return linear.constant + sum(values[name] * factor for name, factor in linear.terms)
