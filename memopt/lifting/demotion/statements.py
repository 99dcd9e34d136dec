"""The statement form of a nest: statements that read memory cells and write one, in loops. It comes before the SCoP.

Example: ``for k < n`` with ``[rdi + 8*k]:64 = add([rsi + 8*k], [rdi + 8*k])`` is ``a[k] = b[k] + a[k]`` before anybody
knows where arrays begin. Addresses are Linear over live-in symbols and loop counters, in bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.ir.scop import Apply, ElementType, Expression, Index, render_operands

INDEX = "x:"  # prefix of the symbols that stand for CellStatement.indices


@dataclass(frozen=True, slots=True)
class CellStatement:
    """``[write] = expression`` over ``reads``, executed where all of ``conditions`` are >= 0.

    Everything that varies with the iteration is in ``linears``. The expression itself refers to reads and indices by
    position, so that copies of a statement in an unrolled loop have equal expressions.
    """

    write: Linear  # byte address of the written cell
    reads: tuple[Linear, ...]  # byte addresses; Read(n) in the expression is the n-th
    expression: Expression
    element: ElementType  # of the written cell
    address: int  # of the instruction
    read_elements: tuple[ElementType, ...] = ()  # of each read; empty: all like the written cell
    indices: tuple[Linear, ...] = ()  # affine numbers that are operands: Index("x:n") is the n-th
    conditions: tuple[Linear, ...] = ()

    @property
    def width(self) -> int:
        """Bits of the written cell."""
        return 8 * self.element.size

    @property
    def accesses(self) -> tuple[Linear, ...]:
        """The written cell, then the cells that are read."""
        """The written cell, then the cells that are read."""
        return (self.write, *self.reads)

    @property
    def elements(self) -> tuple[ElementType, ...]:
        """The element type of each access."""
        return (self.element, *(self.read_elements or (self.element,) * len(self.reads)))

    @property
    def linears(self) -> tuple[Linear, ...]:
        """Everything that may vary with the iteration: accesses, indices, conditions."""
        return (*self.accesses, *self.indices, *self.conditions)

    def moved(self, linears: tuple[Linear, ...]) -> CellStatement:
        """The statement with ``linears`` in place of its own, in the same order."""
        first, second = 1 + len(self.reads), 1 + len(self.reads) + len(self.indices)
        return replace(self, write=linears[0], reads=linears[1:first], indices=linears[first:second],
                       conditions=linears[second:])

    def __str__(self) -> str:
        names = tuple(f"[{r}]" for r in self.reads)
        values = {f"{INDEX}{n}": i for n, i in enumerate(self.indices)}
        where = "".join(f" if {c} >= 0" for c in self.conditions)
        expression = resolved(self.expression, values)
        return f"[{self.write}]:{self.width} = {render_operands(expression, names)}{where}"


def resolved(expression: Expression, indices: Mapping[str, Linear]) -> Expression:
    """``expression`` with the symbols of its Index operands replaced by ``indices``."""
    match expression:
        case Index(value, element):
            return Index(value.substitute(indices), element)
        case Apply(_, operands, _):
            return replace(expression, operands=tuple(resolved(o, indices) for o in operands))
    return expression


@dataclass(frozen=True, slots=True)
class StatementLoop:
    """A loop that executes ``items`` in order for ``counter`` = 0 .. trips - 1."""

    counter: str
    trips: Linear
    items: tuple[StatementItem, ...]

    def __str__(self) -> str:
        lines = [f"for {self.counter} < {self.trips}"]
        for item in self.items:
            lines += ["  " + line for line in str(item).splitlines()]
        return "\n".join(lines)


StatementItem = CellStatement | StatementLoop
ItemT = TypeVar("ItemT", bound=StatementItem)


def conditional(item: ItemT, conditions: Iterable[Linear]) -> ItemT:
    """``item`` restricted to the iterations in which ``conditions`` are >= 0, too."""
    if isinstance(item, CellStatement):
        return replace(item, conditions=(*item.conditions, *conditions))
    return replace(item, items=tuple(conditional(i, conditions) for i in item.items))


def statements_of(item: StatementItem) -> Iterator[CellStatement]:
    """All statements in ``item``, in textual order."""
    if isinstance(item, CellStatement):
        yield item
    else:
        for inner in item.items:
            yield from statements_of(inner)
