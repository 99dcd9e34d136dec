from __future__ import annotations

import random

import pytest

from memopt.ir.evaluate import evaluate
from memopt.ir.operations import Compute, Get, Jump, Literal, Operand, Put, Temp
from memopt.x86.block_builder import BlockBuilder
from tests.support.interpreter import Machine


def test_packing_and_unpacking_cancel() -> None:
    b = BlockBuilder()
    x = b.get("rax")
    low, high = b.compute("trunc", (x,), 32), b.compute("high", (x,), 32)
    both = b.compute("concat", (high, low), 64)
    assert both == x
    other = b.compute("concat", (low, high), 64)
    assert b.compute("trunc", (other,), 32) == high
    assert b.compute("high", (other,), 32) == low
    assert b.compute("trunc", (b.compute("zext", (low,), 64),), 32) == low
    assert b.compute("high", (b.compute("zext", (low,), 64),), 32) == Literal(0, 32)


def test_a_byte_written_into_a_register_is_found_again() -> None:
    b = BlockBuilder()
    x, y = b.get("rax"), b.compute("trunc", (b.get("rcx"),), 8)
    kept = b.compute("and", (x, Literal(0xFFFFFFFFFFFFFF00, 64)), 64)
    merged = b.compute("or", (kept, b.compute("zext", (y,), 64)), 64)
    assert b.compute("trunc", (merged,), 8) == y


def test_equal_computations_are_one_value() -> None:
    b = BlockBuilder()
    x = b.get("rax")
    first = b.compute("add", (x, Literal(8, 64)), 64)
    assert b.compute("add", (Literal(8, 64), x), 64) == first
    assert b.compute("sub", (x, Literal(2**64 - 8, 64)), 64) == first
    assert b.compute("add", (b.compute("add", (x, Literal(3, 64)), 64), Literal(5, 64)), 64) == first


def test_floating_point_is_never_folded() -> None:
    b = BlockBuilder()
    one = Literal(0x3FF0000000000000, 64)
    assert isinstance(b.compute("fadd", (one, Literal(0, 64)), 64), Temp)
    x, y = b.get("xmm0.0"), b.get("xmm1.0")
    assert b.compute("fadd", (x, y), 64) != b.compute("fadd", (y, x), 64)


def test_unused_values_and_overwritten_puts_are_dropped() -> None:
    b = BlockBuilder()
    x = b.get("rax")
    b.compute("mul", (x, x), 64)
    b.put("rcx", x)
    b.put("rcx", b.compute("add", (x, Literal(1, 64)), 64))
    b.jump(0x10, "boring")
    kinds = [type(o) for o in b.finish(0, 1).operations]
    assert kinds == [Get, Compute, Put, Jump]


def test_unused_floating_point_stays_for_its_flags() -> None:
    b = BlockBuilder()
    x = b.get("xmm0.0")
    b.compute("fneg", (x,), 64)
    b.put("xmm1.0", b.compute("fdiv", (x, x), 64))
    b.put("xmm1.0", x)
    b.jump(0x10, "boring")
    assert [o.operator for o in b.finish(0, 1).operations if isinstance(o, Compute)] == ["fdiv"]


def test_a_put_before_an_exit_stays() -> None:
    b = BlockBuilder()
    x = b.get("rax")
    b.put("rcx", x)
    b.exit(b.compute("eq", (x, Literal(0, 64)), 1), 0x10)
    b.put("rcx", Literal(1, 64))
    b.jump(0x20, "boring")
    assert [o.value for o in b.finish(0, 1).operations if isinstance(o, Put)] == [Temp(0), Literal(1, 64)]


_SAME_WIDTH = ("add", "sub", "mul", "and", "or", "xor")
_SHIFTS = ("shl", "shr", "sar")
_COMPARISONS = ("eq", "ne", "slt", "sle", "ult", "ule")


def _random_tree(source: random.Random, b: BlockBuilder, plain: dict[Operand, int], width: int, depth: int
                 ) -> tuple[Operand, int]:
    """A random value, built both by the folding builder and by plain evaluation."""
    def child(size: int) -> tuple[Operand, int]:
        return _random_tree(source, b, plain, size, depth - 1)

    def made(operator: str, *children: tuple[Operand, int]) -> tuple[Operand, int]:
        operands = tuple(o for o, _ in children)
        value = evaluate(operator, tuple(v for _, v in children), tuple(b.width(o) for o in operands), width)
        assert value is not None
        return b.compute(operator, operands, width), value

    if depth == 0 or source.random() < 0.1:
        if width == 64 and source.random() < 0.7:
            operand = source.choice(list(plain))
            return operand, plain[operand]
        value = source.choice((0, 1, (1 << width) - 1, 1 << (width - 1), 0xFF, 8, source.getrandbits(width)))
        value &= (1 << width) - 1
        return Literal(value, width), value
    if width == 1:
        size = source.choice((8, 16, 32, 64))
        choice = source.randrange(3)
        if choice == 0:
            return made("trunc", child(size))
        if choice == 1:
            return made("not", child(1))
        return made(source.choice(_COMPARISONS), child(size), child(size))
    choice = source.randrange(9)
    if choice == 0 and width < 64:
        return made("trunc", child(source.choice([w for w in (16, 32, 64) if w > width])))
    if choice == 1 and width < 64:
        return made("high", child(2 * width))
    if choice == 2 and width > 8:
        return made("concat", child(width // 2), child(width // 2))
    if choice == 3:
        narrower = [w for w in (1, 8, 16, 32) if w < width]
        return made(source.choice(("zext", "sext")), child(source.choice(narrower)))
    if choice == 4:
        count = source.choice((0, 1, width // 2, width - 1, width - 8))
        return made(source.choice(_SHIFTS), child(width), (Literal(count, 8), count))
    if choice == 5:
        return made("select", child(1), child(width), child(width))
    if choice == 6:
        return made("not", child(width))
    return made(source.choice(_SAME_WIDTH), child(width), child(width))


@pytest.mark.parametrize("seed", range(40))
def test_folding_keeps_every_value(seed: int) -> None:
    source = random.Random(seed)
    for _ in range(25):
        b = BlockBuilder()
        state = {name: source.choice((0, 1, 2**63, 2**64 - 1, 2**32 - 1, source.getrandbits(64)))
                 for name in ("rax", "rcx", "rdx")}
        plain = {b.get(name): value for name, value in state.items()}
        result, expected = _random_tree(source, b, plain, source.choice((8, 16, 32, 64)), 6)
        b.put("rbx", b.resize(result, 64))
        b.jump(0x10, "boring")
        machine = Machine(dict(state), 0, b"")
        machine.step(b.finish(0, 1))
        assert machine.locations["rbx"] == expected


def test_narrowing_looks_at_each_sum_once() -> None:
    b = BlockBuilder()
    total = b.resize(b.resize(b.get("rax"), 32), 64)
    other = b.get("rcx")
    for _ in range(60):
        total, other = b.compute("add", (total, total), 64), b.compute("add", (other, other), 64)
    narrow = b.narrow(total, 32)
    assert narrow is not None
    assert b.width(narrow) == 32
    assert b.narrow(other, 32) is None
