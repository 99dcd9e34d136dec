"""Isomorphic statements (as in superword-level parallelism): items that do the same at other places.

Example: ``a[2*i] += x;`` and ``a[2*i + 1] += x;`` are isomorphic, 8 bytes apart.

An item, a statement or a loop, is taken apart into its *form* (operations, nesting, element types) and its *linears*
(addresses, indices, conditions, trip counts). Copies have equal forms; their distance is the difference of their
linears. Their live-in operands, lanes of vector registers, may differ as long as these hold the same bits, which
memopt.lifting.reroll.proofs sees to.

In: items. Out: their ``Shape``, and items with other linears or conditions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import replace

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.ir.scop import Apply, Expression, Read, Scalar
from memopt.lifting.demotion.statements import (
    CellStatement,
    ItemT,
    StatementItem,
    StatementLoop,
    conditional,
    statements_of,
)
from memopt.lifting.values.algebra import LOOP_COUNTER

_OWN = f"{LOOP_COUNTER}#"  # prefix of the counters of loops inside an item, which are numbered in order


@dataclass(frozen=True, slots=True)
class Shape:
    """Form, linears and live-in operands of an item. In ``linears`` the counters of loops inside the item are numbered;
    ``scalars`` are in the order of their uses."""

    form: Hashable
    linears: tuple[Linear, ...]
    scalars: tuple[Scalar, ...]

    @property
    def key(self) -> Hashable:
        """A key that is equal for items of one form whose linears differ only in terms without loop counters."""
        return self.form, tuple(Linear(tuple(t for t in linear.terms if t[0].startswith(LOOP_COUNTER)))
                                for linear in self.linears)

    def distance(self, first: Shape) -> tuple[Linear, ...]:
        """Each linear minus the corresponding one of ``first``, which has the same form."""
        return tuple(a - b for a, b in zip(self.linears, first.linears, strict=True))


def shape(*items: StatementItem) -> Shape:
    """The shape of a sequence of items."""
    names: dict[str, Linear] = {}
    scalars: list[Scalar] = []
    form = tuple(_form(item, names, scalars) for item in items)
    return Shape(form, tuple(linear.substitute(names) for linear in linears(*items)), tuple(scalars))


def linears(*items: StatementItem) -> tuple[Linear, ...]:
    """All affine expressions in ``items``, in a fixed order."""
    return tuple(linear for item in items for linear in _linears(item))


def moved(item: StatementItem, values: Mapping[str, Linear]) -> StatementItem:
    """``item`` with counters of the loops around it replaced by ``values``."""
    return rebuilt(item, tuple(linear.substitute(values) for linear in linears(item)))


def rebuilt(item: StatementItem, numbers: tuple[Linear, ...]) -> StatementItem:
    """``item`` with ``numbers`` as its linears, in the order of ``linears``."""
    rest = iter(numbers)
    result = _rebuilt(item, rest)
    assert next(rest, None) is None
    return result


def counters(item: StatementItem) -> set[str]:
    """The counters of the loops in ``item``."""
    if isinstance(item, CellStatement):
        return set()
    return {item.counter}.union(*map(counters, item.items))


def conditions(*items: StatementItem) -> frozenset[Linear]:
    """The conditions (>= 0) that all statements in ``items`` have in common, without those over counters of loops in
    ``items``."""
    own = frozenset().union(*map(counters, items))
    common = frozenset.intersection(*(frozenset(s.conditions) for i in items for s in statements_of(i)))
    return frozenset(c for c in common if c.symbols.isdisjoint(own))


def unconditional(item: ItemT, known: frozenset[Linear]) -> ItemT:
    """``item`` without the conditions in ``known``."""
    if isinstance(item, CellStatement):
        return replace(item, conditions=tuple(c for c in item.conditions if c not in known))
    return replace(item, items=tuple(unconditional(i, known) for i in item.items))


def restricted(item: ItemT, more: Iterable[Linear]) -> ItemT:
    """``item`` only where all of ``more`` are >= 0. They are sorted, so that those of copies correspond."""
    return conditional(item, sorted(more, key=str))


def _linears(item: StatementItem) -> Iterator[Linear]:
    if isinstance(item, CellStatement):
        yield from item.linears
        return
    yield item.trips
    for inner in item.items:
        yield from _linears(inner)


def _rebuilt(item: StatementItem, rest: Iterator[Linear]) -> StatementItem:
    if isinstance(item, CellStatement):
        return item.moved(tuple(next(rest) for _ in item.linears))
    return StatementLoop(item.counter, next(rest), tuple(_rebuilt(i, rest) for i in item.items))


def _form(item: StatementItem, names: dict[str, Linear], scalars: list[Scalar]) -> Hashable:
    if isinstance(item, CellStatement):
        expression = _without_scalars(item.expression, scalars)
        return expression, item.elements, len(item.reads), len(item.indices), len(item.conditions)
    names[item.counter] = Linear.symbol(f"{_OWN}{len(names)}")
    return tuple(_form(inner, names, scalars) for inner in item.items)


def _without_scalars(expression: Expression, found: list[Scalar]) -> Expression:
    match expression:
        case Scalar(_, element, _):
            found.append(expression)
            return Scalar("", element)
        case Apply(_, operands, _):
            return replace(expression, operands=tuple(_without_scalars(o, found) for o in operands))
    return expression


# -- the same up to the order of operands ---------------------------------------------------------------------------


def commuted(mine: CellStatement, other: CellStatement) -> CellStatement | None:
    """``mine`` with the expression of ``other``, if they are equal up to the order of operands of sums and products;
    else None. Only for comparing addresses: that order decides NaN payloads."""
    if mine.indices or other.indices or mine.element != other.element:
        return None
    found = _match(mine.expression, other.expression, {})
    if found is None or len(found) != len(other.reads) or len(mine.reads) != len(other.reads):
        return None
    if any(mine.elements[1 + found[n]] != other.elements[1 + n] for n in found):
        return None
    reads = tuple(mine.reads[found[n]] for n in range(len(other.reads)))
    return replace(mine, reads=reads, expression=other.expression)


def restored(moved_statement: CellStatement, original: CellStatement) -> CellStatement:
    """The addresses of ``moved_statement``, once ``commuted(original, ...)``, with the expression of ``original``."""
    found = _match(original.expression, moved_statement.expression, {})
    assert found is not None
    reads = list(original.reads)
    for place, number in found.items():
        reads[number] = moved_statement.reads[place]
    return replace(moved_statement, reads=tuple(reads), expression=original.expression)


def _match(mine: Expression, other: Expression, known: dict[int, int]) -> dict[int, int] | None:
    """For each read of ``other`` the read of ``mine`` at its place; None if the expressions do not match."""
    match mine, other:
        case Read(here), Read(there):
            return {**known, there: here} if known.get(there, here) == here else None
        case Apply(name, left, kind), Apply(same, right, other_kind) if (name, kind, len(left)) == (
                same, other_kind, len(right)):
            orders = (left, left[::-1]) if name in ("add", "mul") and kind.is_float else (left,)
            for order in orders:
                found: dict[int, int] | None = known
                for a, b in zip(order, right, strict=True):
                    found = None if found is None else _match(a, b, found)
                if found is not None:
                    return found
            return None
    return known if mine == other else None
