"""From statements in loops to the statements of a SCoP: domains, positions, subscripts, one element type an array."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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
    """A statement with the loops around it, its counters renamed to dimensions; what it accesses has sizes but no
    types yet."""

    source: CellStatement
    trips: tuple[tuple[str, Linear], ...]
    position: tuple[int, ...]
    accesses: tuple[ByteAccess, ...]

    def statement(self, number: int, subscripted: Mapping[ByteAccess, Access],
                  types: Mapping[str, ElementType]) -> Statement:
        source = self.source
        write, *reads = (subscripted[a] for a in self.accesses)
        indices = {f"{INDEX}{n}": i for n, i in enumerate(source.indices)}
        expression = retyped(resolved(source.expression, indices), source.elements[1:],
                             tuple(types[r.array] for r in reads), types[write.array])
        dimensions = tuple(Dimension(d, t) for d, t in self.trips)
        return Statement(f"S{number}", dimensions, write, tuple(reads), expression, self.position, source.conditions)


def flatten(loop: StatementLoop) -> tuple[FlatStatement, ...]:
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
    return tuple(result)


def that_run(flat: tuple[FlatStatement, ...]) -> tuple[FlatStatement, ...]:
    """Without statements that never run, since conditions on the way to them exclude each other."""
    found = tuple(f for f in flat if not f.source.conditions or not iterations(f.trips, f.source.conditions).is_empty)
    return found or flat


def element_types(flat: tuple[FlatStatement, ...], subscripted: Mapping[ByteAccess, Access]) -> dict[str, ElementType]:
    """What computes on an array's cells decides, or on those of an array that they are copied from or to."""
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
    """The live-in symbols that a statement's domain and expression need."""
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
    """The private arrays, and the subscripts of each access."""
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
