"""Ranges of one axis of a macro instance as machine code, from the bounds that the others leave.

Over a block of rows or lanes a range is either *common*, what every one of them has, or *any*, what at least one may
have. Invariant: code clobbers rax, rcx and rdx only, apart from the register asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from memopt.ir.linear import Linear
from memopt.x86.instructions import Mem
from passes.loop_code.ast_code import floor_divide, linear
from passes.loop_code.leaf_shape import AXES, Along
from passes.vector.emitter import Emitter, Value, fits

Names = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Extent:
    """One end of a range: the largest of ``floor(numerator / divisor)`` (``low``), or the smallest."""

    low: bool
    candidates: tuple[tuple[Linear, int], ...]

    @property
    def symbols(self) -> frozenset[str]:
        return frozenset().union(*(n.symbols for n, _ in self.candidates))

    @property
    def constant(self) -> int | None:
        if self.symbols:
            return None
        return (max if self.low else min)(n.constant // d for n, d in self.candidates)


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from ``low`` on, before ``high``."""

    low: Extent
    high: Extent


def axis_range(axis: str, bounds: tuple[Along, ...], block: Mapping[str, int], *, common: bool) -> Range:
    """What the bounds that name ``axis`` leave to it. The other axes stand at their symbols (``AXES``), the first of
    ``block[axis]`` numbers (by default one)."""
    lows, highs = [], []
    for bound in bounds:
        factor = bound.factor(axis)
        if not factor:
            continue
        value = bound.rest
        for other in AXES:
            if other != axis and bound.factor(other):
                spread = bound.factor(other) * (block.get(other, 1) - 1)
                worst = min(0, spread) if common else max(0, spread)
                value = value + Linear.symbol(other, bound.factor(other), worst)
        if factor > 0:  # axis >= ceil(-value / factor)
            lows.append((-value + (factor - 1), factor))
        else:  # axis <= floor(value / -factor)
            highs.append((value - factor, -factor))
    return Range(Extent(True, tuple(dict.fromkeys(lows))), Extent(False, tuple(dict.fromkeys(highs))))


def evaluate(emitter: Emitter, extent: Extent, register: str, names: Names) -> None:
    """``register`` = the end of a range; ``register`` is none of rax, rcx and rdx."""
    number = extent.constant
    if number is not None:
        emitter.load(register, number)
        return
    for position, (numerator, divisor) in enumerate(extent.candidates):
        target = "rax" if position or divisor > 1 else register
        linear(emitter, target, numerator, names, "rcx")
        if divisor > 1:
            floor_divide(emitter, "rax", divisor)
        if position:
            emitter.op("cmp", register, "rax")
            emitter.op("cmovl" if extent.low else "cmovg", register, "rax")
        elif target != register:
            emitter.op("mov", register, "rax")


def limit(emitter: Emitter, register: str, value: Value, *, low: bool) -> None:
    """``register`` = the larger (``low``) or the smaller of itself and ``value``; clobbers rax."""
    if isinstance(value, int):
        emitter.load("rax", value)
        emitter.op("cmp", register, "rax")
        emitter.op("cmovl" if low else "cmovg", register, "rax")
    else:
        emitter.op("cmp", register, value)
        emitter.op("cmovl" if low else "cmovg", register, value)


def stored(emitter: Emitter, extent: Extent, names: Names) -> Value:
    """The end of a range as a number that fits an immediate, or in a fresh slot; clobbers rbx."""
    number = extent.constant
    if number is not None and fits(number):
        return number
    place: Mem = emitter.slot()
    evaluate(emitter, extent, "rbx", names)
    emitter.op("mov", place, "rbx")
    return place
