"""Small nests of statements that accumulate products, and what rerolling makes of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from memopt.ir.linear import Linear
from memopt.ir.scop import Apply, ElementType, Read, Scalar
from memopt.lifting.demotion.aliasing import Aliasing
from memopt.lifting.demotion.statements import CellStatement, StatementItem, StatementLoop
from memopt.lifting.reroll.reroll import reroll
from memopt.lifting.values.algebra import AssumeEqual
from tests.support.statements import executed

H, J, K = (Linear.symbol(f"c:{name}") for name in "ijk")
A, B, C = (Linear.symbol(name) for name in "abc")
R = Linear.symbol("R")
SAMPLE = {"a": 100000, "b": 200000, "c": 300000, "d": 200040, "R": 4}
PRODUCT = Apply("add", (Read(0), Apply("mul", (Read(1), Read(2)))))


def statement(write: Linear, *reads: Linear) -> CellStatement:
    """One that accumulates a product of doubles."""
    return CellStatement(write, reads, PRODUCT, ElementType.F64, 0)


def product(c: Linear, a: Linear, b: Linear) -> CellStatement:
    """``C[c] += A[a] * B[b]``, offsets in bytes."""
    return statement(C + c, C + c, A + a, B + b)


def loop(name: str, trips: int, *items: StatementItem) -> StatementLoop:
    return StatementLoop(f"c:{name}", Linear.of(trips), items)


def ranges(item: StatementItem) -> dict[str, Linear]:
    """The last value of each counter."""
    if isinstance(item, CellStatement):
        return {}
    return {item.counter: item.trips - 1} | {c: r for i in item.items for c, r in ranges(i).items()}


@dataclass
class Lanes:
    """A captured state in which live-in operands are equal as ``bits`` says."""

    bits: dict[Scalar, int] = field(default_factory=dict)
    equated: list[tuple[Scalar, Scalar]] = field(default_factory=list)

    def always(self, distance: Linear, expected: int) -> bool:
        if distance.is_constant:
            return distance.constant == expected
        raise AssumeEqual(distance)

    def alike(self, one: Scalar, two: Scalar) -> bool:
        return self.bits[one] == self.bits[two]

    def equate(self, one: Scalar, two: Scalar) -> None:
        self.equated.append((one, two))


def rolled(*items: StatementItem, lanes: Lanes | None = None) -> StatementLoop:
    """A loop of R iterations over ``items`` after rerolling."""
    outer = StatementLoop("c:i", Linear.symbol("R"), items)
    return reroll(outer, Aliasing(ranges(outer), SAMPLE), lanes or Lanes())


def at(place: Linear, *conditions: Linear) -> CellStatement:
    """``C[place] += A[place] * B[place]`` where every one of ``conditions`` is >= 0."""
    done = product(place * 8, place * 8, place * 8)
    return CellStatement(done.write, done.reads, done.expression, done.element, 0, conditions=conditions)


def same(items: tuple[StatementItem, ...], result: StatementLoop) -> bool:
    """Whether ``result`` accesses the cells that a loop over ``items`` does, in the same order."""
    values = {**SAMPLE, "R": 14}
    return list(executed(result, values)) == list(executed(StatementLoop("c:i", R, items), values))
