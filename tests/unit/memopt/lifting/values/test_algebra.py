"""Operations on symbolic values against the same operations on numbers."""

from __future__ import annotations

import random

import pytest

from memopt.ir.evaluate import evaluate
from memopt.ir.linear import Linear
from memopt.lifting.values.values import Atom, Integer, Loaded, Node, Not, Truth, Value, constant, constant_of
from tests.support.numbers import X, algebra

WORD = 1 << 64


def number(value: Value, x: int, width: int) -> int:
    """What a value is for ``x``; boolean formulas included."""
    match value:
        case Integer(linear, _):
            return linear.evaluate({"x": x}) % (1 << width)
        case Truth(bool() as known, _):
            return int(known)
        case Truth(Atom(linear, equal, _), _):
            found = linear.evaluate({"x": x})
            return int(found == 0 if equal else found >= 0)
        case Truth(formula, _):
            return 1 - number(Truth(formula.operand), x, width)  # type: ignore[union-attr]
    raise AssertionError(value)


WIDENING = ("zext", "sext")
BINARY = ("add", "sub", "mul", "shl", "shr", "sar", "eq", "ne", "slt", "sle", "ult", "ule", "and", "or", "xor")


@pytest.mark.parametrize("operator", [*BINARY, *WIDENING, "trunc", "not"])
@pytest.mark.parametrize("seed", range(8))
def test_linear_operations_agree_with_numbers_where_their_obligations_hold(operator: str, seed: int) -> None:
    """Computed once at a sample, then compared at that and other numbers that fulfil what it asked for."""
    source = random.Random(f"{operator} {seed}")
    checked = 0
    for _ in range(40):
        width = source.choice((32, 64))
        x = source.choice((0, 1, -1, 2**31 - 1, -2**31, 2**32 + 7, source.randrange(-2**40, 2**40)))
        tool = algebra(x)
        left = Integer(X * source.choice((1, 1, 4, 1 << 32)) + source.randrange(-9, 9), width)
        count = source.choice((1, 2, 3, width // 2))
        right: Value = constant(count, 8) if operator[:2] == "sh" or operator == "sar" else constant(
            source.choice((0, 1, 7, 1 << 31, (1 << width) - 1)), width)
        target = {"zext": 64, "sext": 64, "trunc": 16}.get(operator, width)
        if operator in ("eq", "ne", "slt", "sle", "ult", "ule"):
            target = 1
        operands: tuple[Value, ...] = (left,) if operator in (*WIDENING, "trunc", "not") else (left, right)
        result = tool.compute(operator, operands, target)
        if isinstance(result, Node):
            continue
        for other in (x, x + 1, x - 3, x + 2**32, -x, source.randrange(-2**45, 2**45)):
            needs = [o.linear for o in tool.obligations]
            numbers: list[Linear] = []
            if isinstance(result, Truth) and not isinstance(result.formula, bool):
                atom = result.formula.operand if isinstance(result.formula, Not) else result.formula
                assert isinstance(atom, Atom)
                needs += atom.needs
                numbers.append(atom.linear)
            if not all(guarded(n, other) for n in needs) or not all(fits(n, other) for n in (left.linear, *numbers)):
                continue
            checked += 1
            bits = tuple(number(o, other, o.width) for o in operands)
            expected = evaluate(operator, bits, tuple(o.width for o in operands), target)
            assert number(result, other, target) == expected, (operands, result, other)
    assert checked > 0 or operator in ("and", "or", "xor")


def fits(linear: Linear, x: int) -> bool:
    """Guards compute in 64 bits and fail when that overflows; 64-bit sums of live-in values are taken to fit."""
    half = WORD // 2
    return -half <= linear.constant < half and -half <= linear.evaluate({"x": x}) < half


def guarded(linear: Linear, x: int) -> bool:
    return fits(linear, x) and linear.evaluate({"x": x}) >= 0


def test_sign_extension_by_shifts_asks_for_32_bits() -> None:
    """shl 32, sar 32: the upper half of the register does not matter to the machine, so it must be guarded."""
    tool = algebra(7)
    result = tool.compute("sar", (Integer(X * (1 << 32), 64), constant(32, 8)), 64)
    assert result == Integer(X, 64)
    assert all(o.linear.evaluate({"x": 2**31 - 1}) >= 0 for o in tool.obligations)
    assert any(o.linear.evaluate({"x": 2**31}) < 0 for o in tool.obligations)
    assert any(o.linear.evaluate({"x": -2**31 - 1}) < 0 for o in tool.obligations)


def test_zero_extension_by_shifts_asks_for_32_bits() -> None:
    tool = algebra(7)
    assert tool.compute("shr", (Integer(X * (1 << 32), 64), constant(32, 8)), 64) == Integer(X, 64)
    assert any(o.linear.evaluate({"x": 2**32}) < 0 for o in tool.obligations)
    assert any(o.linear.evaluate({"x": -1}) < 0 for o in tool.obligations)


def test_a_narrowed_sign_extension_keeps_the_sign() -> None:
    tool = algebra()
    byte = Loaded(0, 8)
    assert tool.compute("trunc", (Node("sext", (byte,), 64),), 32) == Node("sext", (byte,), 32)
    assert tool.compute("trunc", (Node("zext", (byte,), 64),), 32) == Node("zext", (byte,), 32)
    assert tool.compute("trunc", (Node("sext", (byte,), 64),), 8) == byte


def test_bits_of_equal_and_known_operands() -> None:
    tool = algebra()
    data = Loaded(0, 64)
    assert constant_of(tool.compute("xor", (data, data), 64)) == 0
    assert constant_of(tool.compute("and", (data, constant(0, 64)), 64)) == 0
    assert tool.compute("and", (data, constant(-1, 64)), 64) == data
    assert tool.compute("or", (data, constant(0, 64)), 64) == data
    assert tool.compute("concat", (Node("high", (data,), 32), Node("trunc", (data,), 32)), 64) == data


@pytest.mark.parametrize(("operator", "mask"), [("or", 3), ("xor", 7), ("and", 12), ("and", -16 % WORD), ("or", 16),
                                                ("and", 31), ("xor", -1 % WORD)])
def test_bits_that_are_the_same_whatever_the_symbol_is(operator: str, mask: int) -> None:
    """16 * x + 5: the low four bits are known."""
    value = Integer(X * 16 + 5, 64)
    result = algebra().compute(operator, (value, constant(mask, 64)), 64)
    if mask in (16, 31):
        assert isinstance(result, Node)
        return
    for x in (0, 1, 77, -3):
        expected = evaluate(operator, ((16 * x + 5) % WORD, mask), (64, 64), 64)
        if operator == "xor" and mask == WORD - 1:
            assert isinstance(result, Node)
        else:
            assert number(result, x, 64) == expected


def test_a_sum_that_overflows_is_required_not_to() -> None:
    tool = algebra()
    total = Integer(Linear.symbol("c:1") - 1, 32)
    before = Integer(Linear.symbol("c:1"), 32)
    signs = tool.compute("and", (tool.compute("xor", (before, total), 32), tool.compute("not", (total,), 32)), 32)
    assert tool.compute("slt", (signs, constant(0, 32)), 1) == Truth(False)
    assert {str(o.linear) for o in tool.obligations} >= {"c:1 + 2147483647", "-c:1 + 2147483647"}


@pytest.mark.parametrize("mask", [0x7ffffffffffffffc, 0x3fc, 0xff0])
def test_bits_cleared_at_the_bottom_and_where_there_are_none(mask: int) -> None:
    at = algebra()
    found = at.compute("and", (Integer(Linear.symbol("c:1"), 64), constant(mask, 64)), 64)
    assert isinstance(found, Integer)
    for number_ in (0, 3, 4, 17, 255, 1023, 1024, 4095, 4096):
        if all(o.linear.evaluate({"c:1": number_}) >= 0 for o in at.obligations):
            assert found.linear.evaluate({"c:1": number_}) == number_ & mask
    assert any(o.linear.evaluate({"c:1": mask + 16}) < 0 for o in at.obligations)
