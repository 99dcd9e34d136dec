"""Flattening: statements in a tree of loops become the statements of a SCoP, with domains and positions (schedules).

Example: ``for (i..n) { S: s[i] = 0; for (j..m) T: s[i] += a[j]; }`` becomes S[i<n] at (0, 0) and T[i<n, j<m] at
(0, 1, 0): the textual position at each level says which runs first.

In: a ``StatementLoop``. Out: ``FlatStatement``s, and once their accesses are delinearised, ``Statement``s with one
element type for each array.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.scop import Access, Apply, Array, Dimension, ElementType, Expression, Index, Statement
from memopt.lifting.demotion.expressions import FLOATS, INTEGERS
from memopt.lifting.demotion.scalar_expansion import private_symbol, subscripts
from memopt.lifting.demotion.statements import INDEX, CellStatement, StatementItem, StatementLoop, resolved
from memopt.lifting.scop.delinearisation import ByteAccess
from memopt.lifting.scop.element_types import common, moved_reads, retyped
from memopt.polyhedral.isl import iterations

_NAMES = "ijklmn"


@dataclass(frozen=True, slots=True)
class FlatStatement:
    """A statement with the loops around it; their counters are renamed to dimensions i, j, k, ... Its accesses have
    sizes, but no element types yet."""

    source: CellStatement
    trips: tuple[tuple[str, Linear], ...]  # dimension -> trip count, the outermost first
    position: tuple[int, ...]  # textual position at each level, the outermost first
    accesses: tuple[ByteAccess, ...]  # the write first

    def statement(self, number: int, subscripted: Mapping[ByteAccess, Access],
                  types: Mapping[str, ElementType]) -> Statement:
        """Statement ``S<number>`` of the SCoP, given the subscripts of its accesses and the types of arrays."""
        source = self.source
        write, *reads = (subscripted[a] for a in self.accesses)
        indices = {f"{INDEX}{n}": i for n, i in enumerate(source.indices)}
        expression = retyped(resolved(source.expression, indices), source.elements[1:],
                             tuple(types[r.array] for r in reads), types[write.array])
        dimensions = tuple(Dimension(d, t) for d, t in self.trips)
        return Statement(f"S{number}", dimensions, write, tuple(reads), expression, self.position, source.conditions)


def flatten(loop: StatementLoop) -> tuple[FlatStatement, ...]:
    """The statements of a nest in textual order. Raises Rejected(NOT_A_NEST) where there are none, and
    Rejected(NON_AFFINE) where a bound or a condition has a product: domains are linear."""
    names: dict[str, str] = {}
    result: list[FlatStatement] = []

    def visit(item: StatementItem, around: tuple[tuple[str, Linear], ...], position: tuple[int, ...]) -> None:
        values = {c: Linear.symbol(n) for c, n in names.items()}
        if isinstance(item, StatementLoop):
            number = len(names)
            name = names.setdefault(item.counter, _NAMES[number] if number < len(_NAMES) else f"d{number}")
            for place, inner in enumerate(item.items):
                visit(inner, (*around, (name, item.trips.substitute(values))), (*position, place))
            return
        item = item.moved(tuple(a.substitute(values) for a in item.linears))
        accesses = tuple(ByteAccess(a, around, INTEGERS[8 * e.size], n == 0, item.conditions)
                         for n, (a, e) in enumerate(zip(item.accesses, item.elements, strict=True)))
        result.append(FlatStatement(item, around, position, accesses))

    visit(loop, (), (0,))
    if not result:
        raise Rejected(Reason.NOT_A_NEST, "the loop stores nothing")
    for bound in {b for f in result for b in (*f.source.conditions, *(t for _, t in f.trips)) if b.products}:
        raise Rejected(Reason.NON_AFFINE, f"the bound {bound}")
    return tuple(result)


def that_run(flat: tuple[FlatStatement, ...]) -> tuple[FlatStatement, ...]:
    """``flat`` without statements whose domain is empty, as the conditions around them exclude each other (all, if
    all are empty)."""
    found = tuple(f for f in flat if not f.source.conditions or not iterations(f.trips, f.source.conditions).is_empty)
    return found or flat


def element_types(flat: tuple[FlatStatement, ...], subscripted: Mapping[ByteAccess, Access]) -> dict[str, ElementType]:
    """The element type of each array: that of the operations on its cells, or on the cells of an array that they are
    copied from or to."""
    found: dict[str, set[ElementType]] = {}
    copied: list[tuple[str, str]] = []
    for one in flat:
        names = [subscripted[a].array for a in one.accesses]
        for name, element in zip(names, one.source.elements, strict=True):
            found.setdefault(name, set()).add(element)
        copied += ((names[0], names[1 + index]) for index in moved_reads(one.source.expression))
    types = {array: common(elements) for array, elements in found.items()}
    floating = {array for array, element in types.items() if element.is_float}
    while more := {n for pair in copied if floating & set(pair) for n in pair} - floating:
        floating |= more
    return {array: FLOATS[8 * element.size] if array in floating else element for array, element in types.items()}


def symbols_of(statement: Statement) -> set[str]:
    """The symbols in a statement's domain and expression, without its own dimensions."""
    found = {s for d in statement.dimensions for s in d.trips.symbols}
    found |= {s for c in statement.conditions for s in c.symbols} | _index_symbols(statement.expression)
    return found - {d.name for d in statement.dimensions}


def _index_symbols(expression: Expression) -> set[str]:
    match expression:
        case Index(value, _):
            return set(value.symbols)
        case Apply(_, operands, _):
            return set().union(*map(_index_symbols, operands))
    return set()


def private_arrays(accesses: Iterable[ByteAccess]) -> tuple[tuple[Array, ...], dict[ByteAccess, Access]]:
    """The private arrays that scalar expansion made, and the subscripts of each access. Raises Rejected(CARRIED_VALUE)
    where an array would have elements of different sizes."""
    groups: dict[str, list[ByteAccess]] = {}
    for access in dict.fromkeys(accesses):
        groups.setdefault(private_symbol(access.address), []).append(access)
    arrays: list[Array] = []
    found: dict[ByteAccess, Access] = {}
    for members in groups.values():
        if len({m.element for m in members}) > 1:
            raise Rejected(Reason.CARRIED_VALUE, "a carried value is used in parts of different sizes")
        places = subscripts([m.address for m in members])
        element, name = members[0].element, f"P{len(arrays)}"
        arrays.append(Array(name, element, Linear(), (element.size,) * len(places[0]), private=True))
        found |= {m: Access(name, p) for m, p in zip(members, places, strict=True)}
    return tuple(arrays), found
