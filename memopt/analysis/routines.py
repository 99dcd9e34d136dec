"""Models of the C library's functions that copy and fill memory: the loops that they stand for.

``memcpy`` and ``memmove`` are copies forward, element by element; that is what they do as long as the destination does
not lie inside the source, which is required ("forwards"). An element is as large as is known to divide the size
("granule"). What the System V ABI lets a function change (AMD64 supplement, 3.2.1) is unknown afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from memopt.analysis.algebra import Algebra
from memopt.analysis.values import Value, constant
from memopt.ir.linear import Linear
from memopt.ir.operations import Block, Forget, Literal, Operand
from memopt.x86.folding import BlockBuilder

COPIES, FILLS = ("memcpy", "memmove"), ("memset",)
_STEP = 0x100  # between the addresses of a model's blocks
_GRANULES = (8, 4, 2, 1)


@dataclass(frozen=True, slots=True)
class Routine:
    """The function ``name``, called through the pointer in ``slot`` as long as that holds its ``address``."""

    name: str
    address: int
    slot: int


def model(routine: Routine, base: int, behind: int) -> dict[int, Block]:
    """The blocks of a call of ``routine`` from its first instruction on, which lie at ``base`` and after; ``behind``
    is where it returns to."""
    loops = {size: base + (1 + number) * _STEP for number, size in enumerate(_GRANULES)}
    last = base + (1 + len(loops)) * _STEP
    blocks = {base: _entry(routine, base, loops, last)}
    blocks |= {at: _loop(routine, at, size, last) for size, at in loops.items()}
    return blocks | {last: _return(last, behind)}


def _entry(routine: Routine, base: int, loops: dict[int, int], after: int) -> Block:
    b = BlockBuilder()
    b.address = base
    bound = b.load(Literal(routine.slot, 64), 64)
    b.exit(b.compute("ne", (bound, Literal(routine.address, 64)), 1), routine.address)
    to, size = b.get("rdi"), b.get("rdx")
    b.put("rax", to)
    if routine.name in FILLS:
        byte = b.compute("zext", (b.compute("trunc", (b.get("rsi"),), 8),), 64)
        b.put("rsi", b.compute("mul", (byte, Literal(0x0101010101010101, 64)), 64))
    else:
        apart = b.compute("forwards", (to, b.get("rsi"), size), 1)
        b.exit(b.compute("xor", (apart, Literal(1, 1)), 1), routine.address)
    granule = b.compute("granule", (size,), 64)
    for number, target in loops.items():
        b.exit(b.compute("eq", (granule, Literal(number, 64)), 1), target)
    b.jump(after, "boring")
    return b.finish(base, 0)


def _loop(routine: Routine, address: int, size: int, after: int) -> Block:
    """One turn: while bytes remain in rdx, the element at rsi, or the value in it, goes to rdi."""
    b = BlockBuilder()
    b.address = address
    step = Literal(size, 64)
    rest = b.get("rdx")
    b.exit(b.compute("eq", (rest, Literal(0, 64)), 1), after)
    to, source = b.get("rdi"), b.get("rsi")
    if routine.name in FILLS:
        value: Operand = b.resize(source, 8 * size)
    else:
        value = b.load(source, 8 * size)
        b.put("rsi", b.compute("add", (source, step), 64))
    b.store(to, value)
    b.put("rdi", b.compute("add", (to, step), 64))
    b.put("rdx", b.compute("sub", (rest, step), 64))
    b.jump(address, "boring")
    return b.finish(address, 0)


def _return(address: int, behind: int) -> Block:
    b = BlockBuilder()
    b.address = address
    b.put("rsp", b.compute("add", (b.get("rsp"), Literal(8, 64)), 64))
    b.operations.append(Forget(address))
    b.jump(behind, "boring")
    return b.finish(address, 0)


# -- what symbolic execution makes of the operators -----------------------------------------------------------------


def _granule(algebra: Algebra, operands: tuple[Linear, ...]) -> Value:
    """What divides the size whatever its symbols are, which are fixed where they would leave single bytes.

    0 in a trial, where only what registers hold afterwards is looked at: then there is no loop."""
    if algebra.trial:
        return constant(0, 64)
    size, = operands
    known = math.gcd(_GRANULES[0], size.constant, *(c for _, c in size.terms))
    if known < 4 and not size.is_constant and algebra.settles(size):
        known = math.gcd(_GRANULES[0], algebra.specialised(size).constant)
    return constant(known, 64)


def _forwards(algebra: Algebra, operands: tuple[Linear, ...]) -> Value:
    """True, once it is required: the destination begins before the source or behind it."""
    to, source, size = operands
    distance = to - source
    behind = algebra.at_sample(distance) > 0
    algebra.require(distance - size if behind else -distance, "a destination does not begin inside its source")
    return constant(1, 1)


ABOUT_COPIES: dict[str, Callable[[Algebra, tuple[Linear, ...]], Value]] = {
    "granule": _granule, "forwards": _forwards}
