"""Narrowed expressions: the same values, in fewer bits."""

from __future__ import annotations

import random

import pytest

from memopt.ir.scop import Apply, Constant, ElementType, Expression, Read, render_operands
from passes.loop_code.narrowing import narrowed
from tests.support.lanes import I8, I16, I32, I64, Scalars, adversarial

READS = (I8, I8, I16, I32)
NAMES = ("a", "b", "c", "d")
A, B, C, D = map(Read, range(4))


def zext(value: Expression, element: ElementType = I32) -> Apply:
    return Apply("zext", (value,), element)


def sext(value: Expression, element: ElementType = I32) -> Apply:
    return Apply("sext", (value,), element)


def trunc(value: Expression, element: ElementType = I8) -> Apply:
    return Apply("trunc", (value,), element)


def op(name: str, *operands: Expression, element: ElementType = I32) -> Apply:
    return Apply(name, operands, element)


@pytest.mark.parametrize(("expression", "text"), [
    (trunc(op("add", zext(A), zext(B))), "add.i8(a, b)"),
    (trunc(op("mul", sext(A), op("not", zext(B)))), "mul.i8(a, not.i8(b))"),
    (trunc(op("sub", zext(C), Constant(0x1FF, I32))), "sub.i8(trunc.i8(c), 0xff)"),
    (trunc(op("add", zext(A), zext(C)), I16), "add.i16(zext.i16(a), c)"),
    (trunc(op("shl", zext(A), Constant(9, I8))), "0x0"),
    (trunc(op("shr", op("add", op("add", zext(A), zext(B)), Constant(1, I32)), Constant(1, I8))),
     "trunc.i8(shr.i16(add.i16(add.i16(zext.i16(a), zext.i16(b)), 0x1), 0x1.i8))"),
    (trunc(op("sar", op("sub", zext(A), zext(B)), Constant(2, I8))),
     "trunc.i8(sar.i16(sub.i16(zext.i16(a), zext.i16(b)), 0x2.i8))"),
    (trunc(op("sar", D, Constant(2, I8))), "trunc.i8(sar.i32(d, 0x2.i8))"),
    (trunc(op("smin", zext(A), zext(B))), "umin.i8(a, b)"),
    (trunc(op("smax", sext(A), Constant(0, I32))), "smax.i8(a, 0x0)"),
    (trunc(op("umin", sext(A), sext(B))), "trunc.i8(umin.i32(sext.i32(a), sext.i32(b)))"),
    (trunc(op("add", sext(D, I64), sext(D, I64), element=I64), I32), "add.i32(d, d)"),
    (op("add", zext(A), zext(B)), "add.i32(zext.i32(a), zext.i32(b))"),
])
def test_fewest_bits(expression: Expression, text: str) -> None:
    assert render_operands(narrowed(expression, READS), NAMES) == text


def drawn(rng: random.Random, depth: int, element: ElementType) -> Expression:
    fitting = [r for r, e in zip((A, B, C, D), READS, strict=True) if e is element]
    if depth == 0 or rng.random() < 0.1:
        return rng.choice(fitting) if fitting and rng.random() < 0.8 else Constant(
            rng.choice((0, 1, 7, 255, rng.getrandbits(64))) & (1 << 8 * element.size) - 1, element)
    kind = rng.randrange(8)
    others = [e for e in (I8, I16, I32, I64) if e is not element]
    if kind < 3:
        other = rng.choice(others)
        name = "trunc" if other.size > element.size else rng.choice(("sext", "zext"))
        return Apply(name, (drawn(rng, depth - 1, other),), element)
    if kind < 5:
        count = Constant(rng.choice((0, 1, 4, 8 * element.size - 1, rng.randrange(8 * element.size))), I8)
        return Apply(rng.choice(("shl", "shr", "sar")), (drawn(rng, depth - 1, element), count), element)
    if kind == 5:
        condition = Apply(rng.choice(("slt", "ule")), (drawn(rng, 1, I32), drawn(rng, 1, I32)), I32)
        return Apply("select", (condition, drawn(rng, depth - 1, element), drawn(rng, depth - 1, element)), element)
    name = rng.choice(("add", "sub", "mul", "and", "or", "xor", "andnot", "smin", "smax", "umin", "umax"))
    return Apply(name, (drawn(rng, depth - 1, element), drawn(rng, depth - 1, element)), element)


@pytest.mark.parametrize("seed", range(300))
def test_the_value_is_the_same(seed: int) -> None:
    rng = random.Random(seed)
    expression = Apply("trunc", (drawn(rng, rng.randrange(2, 7), rng.choice((I16, I32, I64))),), I8)
    reads = [[adversarial(rng, e) for _ in range(40)] for e in READS]
    found = narrowed(expression, READS)
    wanted, _ = Scalars().evaluate(expression, reads, READS, 40)
    assert Scalars().evaluate(found, reads, READS, 40) == (wanted, I8), render_operands(found, NAMES)
