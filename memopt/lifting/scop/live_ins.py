"""Live-in values of a region: where the guard finds each symbol at entry, and in which order it may read them.

Example: the bound of ``for (i = 0; i < *n; i++)`` is the symbol ``m[rdi]:64``, a live-in cell behind the pointer rdi.
The guard may read it only if the original would read it too; otherwise rdi may be no pointer at all. Nor may it read a
variable at a fixed address otherwise: the program may have unmapped or protected its page since it was captured.

In: the symbols that guards, domains, subscripts and the rejoin use, and the evidence. Out: a ``LiveIn`` for each of
them and for the pointers to them, with the symbols that are guarded before it is read. Sound because each cell that is
not on the stack has a read of the original that happens whenever the guards before it hold
(memopt.lifting.scop.dereferenceable). Cells come in the order in which the original reads them: in ``if (*p) s += *q;``
the guard on the branch, which knows ``*p``, is checked before ``*q`` is read (passes.version.guards).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from memopt.ir.linear import Linear, Quotient
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import PROGRAM_COUNTER, Cell, LiveIn, Register, Relation
from memopt.ir.scop import LIMIT, TRIPS
from memopt.lifting.execution.assumptions import BASES
from memopt.lifting.execution.parameters import live_in, register_of
from memopt.lifting.scop.evidence import Evidence
from memopt.lifting.values.extensions import WIDE
from memopt.lifting.values.requests import TreatAsData


def live_ins(used: Iterable[str | Quotient], evidence: Evidence) -> tuple[LiveIn, ...]:
    """The live-in value of each symbol in ``used``, of the pointers to them, and of the symbols that are guarded before
    they are read. These guards are added to ``evidence``.

    Raises Rejected(NON_AFFINE) for a floor division or a cell behind a pointer that no guard can follow,
    Rejected(UNPROVED) for a deferred extension, and TreatAsData for a cell that the original might not read.
    """
    symbols: set[str] = set()
    for symbol in used:
        if isinstance(symbol, Quotient):
            raise Rejected(Reason.NON_AFFINE, f"{symbol.numerator} is divided by {symbol.divisor} and rounded")
        if symbol.startswith(WIDE):
            raise Rejected(Reason.UNPROVED, "a value that is extended to more bits does not wrap around")
        symbols.add(symbol)
    needed: dict[str, LiveIn] = {}
    _add(needed, symbols - {TRIPS, LIMIT}, evidence)
    found = _ordered(needed, evidence)
    _check_not_behind_rows(found, evidence)
    return found


def _check_not_behind_rows(found: Iterable[LiveIn], evidence: Evidence) -> None:
    """Raises Rejected(DATA_DEPENDENT_ADDRESS) for a cell in a row whose pointer comes from a table: the guard reads
    live-in cells before it looks at the table, when the row may be elsewhere."""
    known = evidence.assumptions.solved
    rows = [row.substitute(known) for row in evidence.outer.rows]
    for each in found:
        if isinstance(each.location, Cell) and rows:
            address = _address(each, evidence).substitute(known)
            if any((address - row).is_constant for row in rows):
                raise Rejected(Reason.DATA_DEPENDENT_ADDRESS, f"a bound or stride is read at {each.location}, in a row")


def _add(needed: dict[str, LiveIn], symbols: Iterable[str], evidence: Evidence) -> None:
    """Adds the live-in values of ``symbols``, and of the pointers to them, to ``needed``."""
    needed |= {s: _live_in(s, evidence) for s in symbols if s not in needed}
    while pointers := {x.location.base for x in needed.values() if isinstance(x.location, Cell)
                       and x.location.base in evidence.assumptions.cells} - needed.keys():
        needed |= {s: _live_in(s, evidence) for s in pointers}
    if any(isinstance(x.location, Cell) and x.location.base == PROGRAM_COUNTER.name for x in needed.values()):
        needed[PROGRAM_COUNTER.name] = _live_in(PROGRAM_COUNTER.name, evidence)


def _ordered(needed: dict[str, LiveIn], evidence: Evidence) -> tuple[LiveIn, ...]:
    """``needed`` by name, then those in cells that are not on the stack, in the order in which the original reads them;
    each with the symbols that are guarded before it is read (``after``). What these guards need is added to ``needed``.
    """
    done: dict[str, LiveIn] = {}
    while pending := [needed[s] for s in sorted(needed.keys() - done.keys())]:
        for each in pending:
            found = _conditions(each, done, evidence)
            if found is not None:
                evidence.guards += [Relation(c, False, "the loop reads the cell") for c in found]
                after = frozenset(s for c in found for s in c.symbols)
                _add(needed, after - {TRIPS}, evidence)
                done[each.symbol] = replace(each, after=after)
        if all(x.symbol not in done for x in pending):
            raise TreatAsData(_address(pending[0], evidence).evaluate(evidence.sample))
    return tuple(sorted(done.values(), key=lambda x: (_read(x, evidence), x.symbol)))


def _read(each: LiveIn, evidence: Evidence) -> int:
    """When the original reads the live-in value: -1 for what may be read at any time."""
    if not isinstance(each.location, Cell) or each.location.base == "rsp":
        return -1
    return evidence.dereferenceable.order(_address(each, evidence), each.width)


def _conditions(each: LiveIn, done: Mapping[str, LiveIn], evidence: Evidence) -> tuple[Linear, ...] | None:
    """The conditions (>= 0), over registers and the symbols in ``done``, under which the original reads the cell
    ``each``; the fewest that suffice. None where there are none yet.
    """
    if not isinstance(each.location, Cell) or each.location.base == "rsp":
        return ()

    def known(symbol: str) -> bool:
        around = evidence.outer.numerator.symbols if symbol == TRIPS else {symbol}
        return all(s in done or register_of(s) in BASES for s in around)

    if each.location.base and not known(each.location.base):
        return None
    ways = evidence.dereferenceable.of(_address(each, evidence), each.width)
    return min((w for w in ways if all(known(s) for c in w for s in c.symbols)), key=len, default=None)


def _address(each: LiveIn, evidence: Evidence) -> Linear:
    constant = evidence.constants.get(each.symbol)
    return evidence.assumptions.cells[live_in(each.symbol)][0] if constant is None else constant.low


def _live_in(symbol: str, evidence: Evidence) -> LiveIn:
    if symbol in evidence.lanes:
        return evidence.lanes[symbol]
    if (register := register_of(symbol)) in BASES:
        return LiveIn(symbol, Register(register), 8 if live_in(symbol) == register else 1)
    cells = evidence.assumptions.cells
    address, bits = cells[live_in(symbol)]
    match address:
        case Linear((), displacement):
            return LiveIn(symbol, Cell("", displacement, bits // 8), bits // 8)
        case Linear(((base, 1),), displacement) if base in BASES and base not in evidence.outer.opaque:
            return LiveIn(symbol, Cell(base, displacement, bits // 8), bits // 8)
        case Linear(((base, 1),), displacement) if cells.get(base, (0, 0))[1] == 64:
            return LiveIn(symbol, Cell(base, displacement, bits // 8), bits // 8)
    raise Rejected(Reason.NON_AFFINE, f"a bound or stride is read through the pointer {address}")
