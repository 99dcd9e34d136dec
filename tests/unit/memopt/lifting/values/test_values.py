from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import pytest

from memopt.ir.linear import Linear
from memopt.lifting.values.values import (
    Atom,
    Carried,
    Formula,
    Integer,
    Loaded,
    Node,
    Not,
    Opaque,
    Substitution,
    Truth,
    Value,
    both,
    centred,
    constant,
    constant_of,
    data,
    either,
    negate,
    within,
)
from tests.support.towers import tower

X = Linear.symbol("x")
POSITIVE, ZERO = Atom(X, False), Atom(X, True)


@pytest.mark.parametrize("width", [1, 8, 32, 64])
def test_constants_are_kept_as_small_signed_numbers(width: int) -> None:
    for number in (0, 1, 2 ** (width - 1) - 1, 2 ** (width - 1), 2**width - 1):
        assert constant_of(constant(number, width)) == number
        assert abs(centred(number, width)) <= 2 ** (width - 1)
    assert constant_of(Integer(X, width)) is None


def holds(formula: Formula, x: int) -> bool:
    match formula:
        case bool():
            return formula
        case Atom(linear, equal, _):
            number = linear.evaluate({"x": x})
            return number == 0 if equal else number >= 0
        case Not(operand):
            return not holds(operand, x)
        case Opaque():
            raise AssertionError
        case _:
            return holds(formula.left, x) or holds(formula.right, x)


@pytest.mark.parametrize("left", [True, False, POSITIVE, ZERO, Not(ZERO)])
@pytest.mark.parametrize("right", [True, False, POSITIVE, ZERO, Not(ZERO)])
def test_connectives(left: Formula, right: Formula) -> None:
    for x in (-1, 0, 1):
        assert holds(either(left, right), x) == (holds(left, x) or holds(right, x))
        assert holds(both(left, right), x) == (holds(left, x) and holds(right, x))
        assert holds(negate(left), x) != holds(left, x)
    assert negate(negate(left)) == left


def test_data_of_a_formula() -> None:
    hidden = Carried("loop", "rax")
    assert list(data(both(either(POSITIVE, Opaque(hidden)), negate(Opaque(Loaded(1, 8)))))) == [hidden, Loaded(1, 8)]
    assert list(data(either(POSITIVE, ZERO))) == []


def test_substitution_reaches_the_operands_of_nodes() -> None:
    value = Node("mul", (Integer(X + 1, 64), Loaded(0, 64)), 64)
    new = Substitution({"x": Linear.of(3)})
    assert new.value(value) == Node("mul", (Integer(Linear.of(4), 64), Loaded(0, 64)), 64)
    truth = Truth(either(Opaque(value), negate(Atom(X, True, (X - 1,)))), 8)
    three = Not(Atom(Linear.of(3), True, (Linear.of(2),)))
    assert new.value(truth) == Truth(either(Opaque(new.value(value)), three), 8)


def test_what_values_have_in_common_is_rewritten_once() -> None:
    """As a tree this value has 2**200 leaves."""
    value: Value = Integer(X, 64)
    for _ in range(200):
        value = Node("mul", (value, value), 64)
    found = Substitution({"x": Linear.of(3)}).value(value)
    for _ in range(200):
        assert isinstance(found, Node)
        assert found.operands[0] is found.operands[1]
        found = found.operands[0]
    assert found == constant(3, 64)
    assert Substitution({"y": Linear.of(3)}).value(value) is value


def test_equal_operations_are_one_object() -> None:
    one, other = (tower("fadd", Loaded(3, 64), 200) for _ in range(2))
    assert (one is other) is True
    assert pickle.loads(pickle.dumps(tower("fadd", Loaded(3, 64), 20))) is tower("fadd", Loaded(3, 64), 20)
    assert (one != tower("fadd", Loaded(4, 64), 200)) is True
    assert (copy.copy(one) is one) is True
    assert replace(one, width=32).width == 32


def test_parts_come_once_from_the_left_and_only_from_where_they_are_asked_for() -> None:
    left, right = Node("fneg", (Loaded(1, 64),), 64), Node("fneg", (Loaded(2, 64),), 64)
    whole = Node("fadd", (left, Node("fmul", (right, left), 64)), 64)
    assert [p for p in within(whole) if isinstance(p, Loaded)] == [Loaded(1, 64), Loaded(2, 64)]
    assert Loaded(2, 64) not in within(whole, lambda part: part != right)
    assert right in within(whole, lambda part: part != right)
