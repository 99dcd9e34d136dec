"""Loop bounds of one axis of a macro instance, as expressions and as machine code.

Example: the bound j <= i, for lanes j and a block of four rows i .. i+3. Every row has the lanes up to i (the *common*
range); at least one row has the lanes up to i+3 (the other range, possibly with lanes that none has).

In: the bounds of a leaf, the sizes of the block along the other axes. Out: a ``Range`` [low, high), whose ends are
maxima or minima of quotients rounded down; and code that evaluates them. The code clobbers rax, rcx, rdx and the
register asked for (``stored``: rbx), nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.x86.instructions import Mem
from passes.loop_code.ast_code import floor_divide, linear
from passes.loop_code.leaf_shape import AXES, Along
from passes.vector.emitter import Emitter, Value, fits

Names = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Extent:
    """One end of a range: over all candidates, the maximum (a ``low`` end) or minimum of floor(numerator / divisor)."""

    low: bool
    candidates: tuple[tuple[Linear, int], ...]  # (numerator, divisor > 0)

    @property
    def symbols(self) -> frozenset[str]:
        """The symbols that the end depends on."""
        return frozenset().union(*(n.symbols for n, _ in self.candidates))

    @property
    def constant(self) -> int | None:
        """The end as a number, if it depends on no symbol; else None."""
        if self.symbols:
            return None
        return (max if self.low else min)(n.constant // d for n, d in self.candidates)


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers ``low`` <= n < ``high`` of one axis."""

    low: Extent
    high: Extent


def axis_range(axis: str, bounds: tuple[Along, ...], block: Mapping[str, int], *, common: bool) -> Range:
    """The range of ``axis`` over a block of points, by the bounds that name it.

    The block has ``block[other]`` numbers (default 1) on each other axis, from the value of that axis' symbol on.
    ``common``: the range that every point of the block has; else a range that contains the range of every point.
    """
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
    """``register = extent``, where ``register`` is none of rax, rcx and rdx, which are clobbered."""
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
    """``register`` = max(register, value) for a ``low`` end, else min(register, value); a number clobbers rax."""
    if isinstance(value, int):
        emitter.load("rax", value)
        emitter.op("cmp", register, "rax")
        emitter.op("cmovl" if low else "cmovg", register, "rax")
    else:
        emitter.op("cmp", register, value)
        emitter.op("cmovl" if low else "cmovg", register, value)


def stored(emitter: Emitter, extent: Extent, names: Names) -> Value:
    """The end of a range: a number if it is a constant that fits an immediate, else a fresh slot; clobbers rbx."""
    number = extent.constant
    if number is not None and fits(number):
        return number
    place: Mem = emitter.slot()
    evaluate(emitter, extent, "rbx", names)
    emitter.op("mov", place, "rbx")
    return place
