"""Statements on memory cells, in the loops of a lifted nest: the form between machine code and a SCoP.

Addresses are Linear over live-in symbols and loop counters, in bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from memopt.ir.linear import Linear
from memopt.ir.scop import Apply, ElementType, Expression, Index, render_operands

INDEX = "x:"  # prefix of the symbols that stand for CellStatement.indices


@dataclass(frozen=True, slots=True)
class CellStatement:
    """``[write] = expression`` over ``reads``, where every one of ``conditions`` is >= 0; addresses in bytes.

    The expression's ``Index`` operands are places in ``indices`` ("x:0", "x:1", ...), so that equal expressions are
    equal objects whatever iteration they stand for: everything that varies is in ``linears``.
    """

    write: Linear
    reads: tuple[Linear, ...]
    expression: Expression
    element: ElementType  # of the written cell
    address: int
    read_elements: tuple[ElementType, ...] = ()  # none: all like the written cell
    indices: tuple[Linear, ...] = ()
    conditions: tuple[Linear, ...] = ()

    @property
    def width(self) -> int:
        """Bits of the written cell."""
        return 8 * self.element.size

    @property
    def accesses(self) -> tuple[Linear, ...]:
        return (self.write, *self.reads)

    @property
    def elements(self) -> tuple[ElementType, ...]:
        """The element type of each access."""
        return (self.element, *(self.read_elements or (self.element,) * len(self.reads)))

    @property
    def linears(self) -> tuple[Linear, ...]:
        """Everything that changes from iteration to iteration."""
        return (*self.accesses, *self.indices, *self.conditions)

    def moved(self, linears: tuple[Linear, ...]) -> CellStatement:
        """The statement with other ``linears``."""
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
    """``expression`` with the places of its Index operands filled in."""
    match expression:
        case Index(value, element):
            return Index(value.substitute(indices), element)
        case Apply(_, operands, _):
            return replace(expression, operands=tuple(resolved(o, indices) for o in operands))
    return expression


@dataclass(frozen=True, slots=True)
class StatementLoop:
    """``items`` in order, for ``counter`` = 0 .. trips - 1."""

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
    """``item`` only where ``conditions`` are >= 0 too."""
    if isinstance(item, CellStatement):
        return replace(item, conditions=(*item.conditions, *conditions))
    return replace(item, items=tuple(conditional(i, conditions) for i in item.items))


def statements_of(item: StatementItem) -> Iterator[CellStatement]:
    """Every statement, in the order of the text."""
    if isinstance(item, CellStatement):
        yield item
    else:
        for inner in item.items:
            yield from statements_of(inner)
