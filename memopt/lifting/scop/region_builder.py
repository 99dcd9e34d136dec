"""Assembles the ``Region``: arrays, statements with domains, guards, live-in values, and what the rejoin restores.

Example: for ``for (i = 0; i < n; i++) a[i] += b[i];`` the region has the arrays A0 (rows of a) and A1, one statement
with the domain 0 <= i < R, the guard that a and b do not overlap, the live-ins rdi, rsi and rcx, and the rejoin
``rcx = rcx + H``, where H is the iteration at which the original takes over again.

In: the statements found by demotion and rerolling, the outer loop, and the evidence of what they rely on. Out: a
``Region``. Sound because everything that is still open ends here in one of three ways: it becomes a guard that holds
at the captured values, or it is asked of the next attempt (memopt.lifting.values.requests), or it is ``Rejected``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import combinations

from memopt.ir.linear import Linear, Quotient
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import (
    Cell,
    Footprint,
    Guard,
    Interval,
    LiveIn,
    MemoryBacked,
    NanFree,
    Progression,
    Region,
    Register,
    RegisterCarried,
    Rejoin,
    Relation,
    Trips,
    symbols_of_guard,
    with_room,
)
from memopt.ir.scop import LIMIT, TRIPS, Access, Array, ElementType, Scalar, Scop, bytes_of
from memopt.lifting.demotion.expressions import INTEGERS
from memopt.lifting.demotion.outer_carried import PrivateBacked
from memopt.lifting.demotion.recover import Recovered
from memopt.lifting.demotion.scalar_expansion import is_private, private_symbol
from memopt.lifting.demotion.statements import StatementLoop
from memopt.lifting.execution.assumptions import GENERAL, SLOT, slot_range
from memopt.lifting.execution.induction import times
from memopt.lifting.execution.parameters import parametric
from memopt.lifting.reroll.operand_order import nan_free_guards
from memopt.lifting.scop.delinearisation import ByteAccess, Cluster, clusters, delinearise
from memopt.lifting.scop.evidence import Evidence
from memopt.lifting.scop.flatten import element_types, flatten, private_arrays, symbols_of, that_run
from memopt.lifting.scop.live_ins import live_ins
from memopt.lifting.scop.liveness import MOST_LEFT, carried_on, iterations_left, running
from memopt.lifting.scop.obligations import guards_for, limits
from memopt.lifting.scop.pivot_guards import disjoint_cells
from memopt.lifting.scop.progress_cells import progress_cells
from memopt.lifting.scop.reduction_unrolling import unroll_reductions
from memopt.lifting.scop.symbolic_rows import rows_of
from memopt.lifting.scop.table_guards import table_guards
from memopt.lifting.values.requests import (
    AssumeAll,
    AssumeEqual,
    ExpressByTrips,
    KeepLiveOut,
    KeepOperandOrder,
    NotAParameter,
    TreatAsData,
)


def region(recovered: Recovered, statements: StatementLoop, evidence: Evidence, dead: frozenset[str],
           assumed: Iterable[tuple[Interval, Interval]], displaced: bytes) -> Region:
    """The region of ``statements``, which rerolling made of ``recovered.loop``.

    ``dead``: registers and lanes that are dead at the header. ``assumed``: footprints that were taken for disjoint
    (memopt.lifting.demotion.aliasing). ``displaced``: see ``Region``. What the region relies on is added to
    ``evidence``, whose guards it gets. Raises Rejected or a Request where something cannot be guarded.
    """
    outer, sample = evidence.outer, evidence.sample
    restored = recovered.restored_registers | dead
    _guard_equations(evidence)
    left = _original_iterations(restored, evidence)
    for one, two in assumed:
        evidence.disjoint(one, two, "arrays do not overlap")
    flat = that_run(flatten(statements))
    accesses = [a for s in flat for a in s.accesses]
    found = clusters((*(a for a in accesses if not is_private(a.address)), *map(_access, recovered.memory_backed)),
                     sample)
    _unify(found, evidence)
    arrays, subscripts = _arrays(found, evidence)
    footprints = tuple(c.footprint(a.name) for c, a in zip(found, arrays, strict=True))
    expanded, private = private_arrays([a for a in accesses if is_private(a.address)])
    types = element_types(flat, subscripts | private)
    arrays = tuple(replace(a, element=types.get(a.name, a.element)) for a in (*arrays, *expanded))
    scop = Scop(arrays, tuple(s.statement(n, subscripts | private, types) for n, s in enumerate(flat)))
    scop, progress = progress_cells(unroll_reductions(scop), outer.steps)
    evidence.guards += evidence.proofs
    evidence.guards += guards_for(outer, tuple(evidence.demands), sample, evidence.assumptions)
    evidence.guards += table_guards(outer, sample)
    _separate(found, evidence)
    _hold_numbers(evidence)
    known = limits(tuple(g for g in evidence.guards if isinstance(g, Relation)))
    evidence.guards += disjoint_cells(scop, known, sample)
    rejoin = (*_rejoin(evidence), *progress)
    passed = tuple(_passed(recovered.private_backed, expanded, private, evidence))
    nan_free = _nan_free(scop, footprints, passed, evidence)
    trips = Trips(outer.numerator, outer.divisor)
    used = _symbols(rejoin, trips, found, scop, recovered.memory_backed, evidence.guards)
    entered = live_ins(used, evidence) + tuple(evidence.lanes[p.symbol] for p in passed)
    made = Region(outer.node.address, displaced, entered, trips, tuple(dict.fromkeys(evidence.guards)), rejoin,
                  footprints, scop, original_iterations=left, rollback=() if outer.zeros else None,
                  memory_backed=recovered.memory_backed, register_carried=passed,
                  nan_free=nan_free,
                  dead_stack_cells=tuple(_dead_stack_cells(outer.opaque - restored)),
                  dead_registers=tuple(sorted(dead.intersection(GENERAL) & outer.opaque)))
    return with_room(made, sample, sample[TRIPS])


def _dead_stack_cells(locations: Iterable[str]) -> Iterator[Cell]:
    for slot in sorted(locations):
        if slot.startswith(SLOT):
            yield Cell("rsp", *slot_range(slot))


def _nan_free(scop: Scop, footprints: tuple[Footprint, ...], passed: tuple[RegisterCarried, ...],
              evidence: Evidence) -> tuple[NanFree, ...]:
    """Where the guard looks for NaNs, so that the order of operands is free. Every NaN that comes up later is made by
    an invalid operation: it is the default one, and raises the invalid flag, which makes a version with
    ``Region.rollback`` roll back.
    """
    if not (evidence.reordered or evidence.outer.unordered):
        return ()
    try:
        found = nan_free_guards(scop, footprints, passed, evidence.sample)
    except Rejected:
        if not evidence.reordered:
            raise
        found = None
    if found is None and evidence.reordered:
        raise KeepOperandOrder
    if found is None:
        raise Rejected(Reason.DATA_DEPENDENT_BRANCH, "the operand of a square root may be a NaN")
    return found


def _original_iterations(restored: frozenset[str], evidence: Evidence) -> int:
    """How many of the last iterations the original runs itself (memopt.lifting.scop.liveness). Where inner loops have
    to run in them, that is guarded. Raises KeepLiveOut where a carried value is used after the loop."""
    outer, known = evidence.outer, limits(evidence.proofs)
    try:
        return iterations_left(outer, restored, known)
    except Rejected as refusal:
        for left in range(1, MOST_LEFT + 1):
            needs = running(outer, left, evidence.sample)
            with suppress(Rejected):
                found = iterations_left(outer, restored, replace(known, facts=(*known.facts, *needs)))
                evidence.guards += [Relation(n, False, "inner loops run in the last iterations") for n in needs]
                return found
        more = carried_on(outer, restored, known) - evidence.assumptions.kept
        if more:
            raise KeepLiveOut(more) from None
        raise refusal


# -- what the specialisation relies on ------------------------------------------------------------------------------


def _guard_equations(evidence: Evidence) -> None:
    """Guards for the equations of this attempt; none of them may change from one iteration to the next."""
    for symbol in evidence.assumptions.parameters:
        if evidence.invariants.step(Linear.symbol(symbol)):
            raise NotAParameter(symbol)
    for linear, value in evidence.assumptions.equations:
        if evidence.invariants.step(linear):
            raise Rejected(Reason.NON_AFFINE, f"{linear} changes with each iteration of the outer loop")
        evidence.guards.append(Relation(linear - value, True, "specialised"))


def _hold_numbers(evidence: Evidence) -> None:
    """Guards that registers hold the numbers by which branches are decided, or to which each iteration sets them."""
    for location, bits in evidence.outer.zeros.items():
        if location:
            element = ElementType.F64 if bits == 64 else ElementType.F32
            _hold(location, element, bytes(element.size), "operands of square roots are compared with zero", evidence)
    for (location, element), held in evidence.outer.fixed.items():
        _hold(location, element, held, "a register holds one number throughout", evidence)


def _hold(location: str, element: ElementType, number: bytes, why: str, evidence: Evidence) -> None:
    name, _, lane = location.partition(".")
    held = evidence.lane(Scalar(name, element, 8 * int(lane)))
    evidence.guards.append(Relation(held - int.from_bytes(number, "little", signed=True), True, why))


# -- arrays ---------------------------------------------------------------------------------------------------------


def _unify(found: tuple[Cluster, ...], evidence: Evidence) -> None:
    """Asks that clusters over different base symbols whose footprints overlap become one array: the distance of their
    bases is to be a number. Raises AssumeAll, ExpressByTrips or Rejected(OVERLAP) where there are such clusters."""
    sample, invariants, by_trips = evidence.sample, evidence.invariants, evidence.assumptions.by_trips
    needs: list[AssumeEqual] = []
    for first, second in combinations(found, 2):
        if not (first.written or second.written) or first.symbols == second.symbols:
            continue
        if (first.low.evaluate(sample) < second.high.evaluate(sample)
                and second.low.evaluate(sample) < first.high.evaluate(sample)):
            difference = first.symbols - second.symbols
            invariant = invariants.invariant(difference)
            if not invariant.is_constant and (by_trips or not parametric(invariant)):
                needs.append(AssumeEqual(invariant, invariants.moves(difference)))
            elif by_trips:
                raise Rejected(Reason.OVERLAP, "the distance of two arrays changes with each iteration")
            else:
                raise ExpressByTrips
    if needs:
        raise AssumeAll(tuple(needs))


def _arrays(found: tuple[Cluster, ...], evidence: Evidence) -> tuple[tuple[Array, ...], dict[ByteAccess, Access]]:
    """An array for each cluster, and the subscripts of each access."""
    arrays: list[Array] = []
    subscripts: dict[ByteAccess, Access] = {}
    for number, cluster in enumerate(found):
        evidence.guards += [Relation(n, False, "the array does not reach further") for n in cluster.needs]
        shape = rows_of if any(m.address.products for m in cluster.members) else delinearise
        array, accesses, guards = shape(cluster, f"A{number}", evidence.sample)
        arrays.append(array)
        subscripts |= accesses
        evidence.guards += guards
    return tuple(arrays), subscripts


def _separate(found: tuple[Cluster, ...], evidence: Evidence) -> None:
    """Guards that arrays, the stack cells that the loop uses and its live-in cells share no byte."""
    for first, second in combinations(found, 2):
        if first.written or second.written:
            evidence.disjoint(first.interval, second.interval, "arrays do not overlap")
    scalars = _scalar_cells(evidence)
    for interval, written in scalars:
        for cluster in found:
            if cluster.written and not written:
                _check_not_stored(cluster.interval, interval, evidence)
            if cluster.written or written:
                evidence.disjoint(cluster.interval, interval, "arrays do not overlap the loop's own variables")
    for (one, first_written), (two, second_written) in combinations(scalars, 2):
        if first_written or second_written:
            evidence.disjoint(one, two, "a variable read through a pointer is not one on the stack")


def _check_not_stored(array: Interval, cell: Interval, evidence: Evidence) -> None:
    """Raises TreatAsData for a live-in cell that lies in a written array at the captured values."""
    sample, assumptions = evidence.sample, evidence.assumptions
    low, high = (b.evaluate(sample) for b in (array.low, array.high))
    address = cell.low.evaluate(sample)
    if low < cell.high.evaluate(sample) and address < high and address not in assumptions.written and (
            cell.low - assumptions.symbol("rsp")).terms:
        raise TreatAsData(address)


def _scalar_cells(evidence: Evidence) -> list[tuple[Interval, bool]]:
    """Cells outside the arrays that the loop or a guard accesses, as (interval, written). Those on the stack are one
    interval."""
    outer, stack = evidence.outer, evidence.assumptions.symbol("rsp")
    offsets = [(int(p[1]), int(p[2]) // 8) for s in outer.slots if (p := s.split(":"))]
    result = [(g.within, False) for g in evidence.guards if isinstance(g, Progression)]
    result += [(interval, False) for interval in evidence.constants.values()]
    for address, width in evidence.assumptions.cells.values():
        distance = address - stack
        if distance.is_constant:
            offsets.append((distance.constant, width // 8))
        else:
            result.append((Interval(address, address + width // 8), False))
    if offsets:
        low, high = min(o for o, _ in offsets), max(o + w for o, w in offsets)
        result.append((Interval(stack + low, stack + high), bool(outer.slots)))
    return result


def _access(backed: MemoryBacked) -> ByteAccess:
    """The access to the cell that holds a carried value, at every header at which a version may stop."""
    cell = backed.cell.substitute({LIMIT: Linear.symbol("i")})
    return ByteAccess(cell, (("i", Linear.symbol(TRIPS)),), INTEGERS[8 * backed.width], written=False)


# -- rejoin ---------------------------------------------------------------------------------------------------------


def _rejoin(evidence: Evidence) -> tuple[Rejoin, ...]:
    """The induction variables of the outer loop at the header of iteration H (``LIMIT``)."""
    outer = evidence.outer
    result = []
    for location, step in sorted(outer.steps.items()):
        if location in GENERAL:
            value = Linear.symbol(location) + times(Linear.symbol(LIMIT), step)
            result.append(Rejoin(Register(location), value, 4 if location in outer.narrow else 8))
        elif location.startswith(SLOT):
            _, offset, bits = location.split(":")
            if int(bits) < 32:
                raise Rejected(Reason.UNSUPPORTED_INSTRUCTION, f"a {bits}-bit counter on the stack")
            symbol = _slot_symbol(int(offset), evidence)
            value = Linear.symbol(symbol) + times(Linear.symbol(LIMIT), step)
            result.append(Rejoin(Cell("rsp", int(offset), int(bits) // 8), value, int(bits) // 8))
    return tuple(result)


def _slot_symbol(offset: int, evidence: Evidence) -> str:
    """The symbol of the widest live-in cell at ``rsp + offset``."""
    address = evidence.assumptions.symbol("rsp") + offset
    return max((w, s) for s, (a, w) in evidence.assumptions.cells.items() if a == address)[1]


def _passed(private_backed: tuple[PrivateBacked, ...], arrays: tuple[Array, ...],
            subscripts: Mapping[ByteAccess, Access], evidence: Evidence) -> Iterator[RegisterCarried]:
    """Registers that the outermost loop carries, each with the private array that replaces it."""
    for each in private_backed:
        names = {s.array for a, s in subscripts.items() if private_symbol(a.address) == private_symbol(each.cell)}
        found = [a for a in arrays if a.name in names]
        if len(found) != 1 or found[0].strides or found[0].element.size != each.width:
            raise Rejected(Reason.CARRIED_VALUE, f"{each.location} is used in parts, or not at all")
        symbol = f"{each.location} at the header"
        evidence.lanes[symbol] = LiveIn(symbol, each.location, each.width)
        yield RegisterCarried(each.location, each.width, found[0].name, symbol)


def _symbols(rejoin: tuple[Rejoin, ...], trips: Trips, found: tuple[Cluster, ...], scop: Scop,
             memory_backed: tuple[MemoryBacked, ...], guards: Iterable[Guard]) -> set[str | Quotient]:
    """The symbols whose values the guard, the version or the rejoin needs."""
    used = set(trips.numerator.symbols) | {s for r in rejoin for s in r.value.symbols}
    used |= {r.location.base for r in rejoin if isinstance(r.location, Cell) and r.location.base}
    used |= {s for statement in scop.statements for s in symbols_of(statement)}
    used |= {s for c in found for s in c.symbols.symbols}
    used |= {s for a in scop.arrays for stride in a.strides for s in bytes_of(stride).symbols}
    used |= {s for m in memory_backed for x in (m.cell, m.near) if x is not None for s in x.symbols}
    for guard in guards:
        used |= symbols_of_guard(guard)
    return used
