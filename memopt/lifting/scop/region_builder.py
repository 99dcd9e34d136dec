"""The region of a nest whose statements have been found: arrays, live-in values, guards, and what the rejoin restores.

What a proof left open is asked of the lift as an equation, becomes a guard that holds for the captured state, or the
region is rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TypeVar

from memopt.ir.linear import Linear, Quotient
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import (
    Cell,
    Disjoint,
    Footprint,
    Guard,
    Interval,
    Lane,
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
    with_room,
)
from memopt.ir.scop import LIMIT, TRIPS, Access, Array, ElementType, Scalar, Scop
from memopt.lifting.demotion.expressions import INTEGERS
from memopt.lifting.demotion.outer_carried import PrivateBacked
from memopt.lifting.demotion.scalar_expansion import is_private, private_symbol
from memopt.lifting.demotion.statements import StatementLoop
from memopt.lifting.execution.assumptions import GENERAL, SLOT, Assumptions, slot_range
from memopt.lifting.execution.entry_invariants import EntryInvariants
from memopt.lifting.execution.executor import OuterLoop
from memopt.lifting.execution.parameters import live_in, parametric, register_of
from memopt.lifting.execution.row_tables import WORD
from memopt.lifting.reroll.operand_order import nan_free_guards
from memopt.lifting.scop.delinearisation import ByteAccess, Cluster, clusters, delinearise
from memopt.lifting.scop.dereferenceable import Dereferenceable
from memopt.lifting.scop.flatten import element_types, flatten, private_arrays, symbols_of, that_run
from memopt.lifting.scop.liveness import MOST_LEFT, carried_on, iterations_left, running
from memopt.lifting.scop.obligations import guards_for, limits
from memopt.lifting.scop.pivot_guards import disjoint_cells
from memopt.lifting.scop.reduction_unrolling import unroll_reductions
from memopt.lifting.values.algebra import Obligation
from memopt.lifting.values.extensions import WIDE
from memopt.lifting.values.requests import (
    AssumeAll,
    AssumeEqual,
    ExpressByTrips,
    KeepLiveOut,
    KeepOperandOrder,
    NotAParameter,
    TreatAsData,
)

_Found = TypeVar("_Found")


@dataclass
class RegionBuilder:
    facts: Assumptions
    outer: OuterLoop
    remaining: EntryInvariants

    def __post_init__(self) -> None:
        self.sample = self.facts.samples()
        self.sample[TRIPS] = self._sample_trips()
        self.dereferenceable = Dereferenceable(
            self.outer.reads, self.outer.node.counter, self.facts.solved, self.sample)
        self.proofs = guards_for(self.outer, self.outer.obligations, self.sample, self.facts)
        self.demands: list[Obligation] = []  # beyond those of symbolic execution
        self.guards: list[Guard] = []
        self.lanes: dict[str, LiveIn] = {}
        self.constants: dict[str, Interval] = {}  # cells that are read by the guard alone
        self.memory_backed: tuple[MemoryBacked, ...] = ()
        self.private_backed: tuple[PrivateBacked, ...] = ()
        self.restored: frozenset[str] = frozenset()
        self.dead: frozenset[str] = frozenset()  # general registers that are overwritten before they are read
        self.reordered = False  # operands of sums and products
        self.asked: dict[Linear, AssumeEqual] = {}  # equations that would make something always so

    def region(self, header: int, displaced: bytes, statements: StatementLoop,
               assumed: tuple[tuple[Interval, Interval], ...]) -> Region:
        self._check_equations()
        left = self._iterations_left()
        for one, two in assumed:
            self._disjoint(one, two, "arrays do not overlap")
        flat = that_run(flatten(statements))
        accesses = [a for s in flat for a in s.accesses]
        found = clusters((*(a for a in accesses if not is_private(a.address)), *map(_access, self.memory_backed)),
                         self.sample)
        self._unify(found)
        arrays, subscripts = self._arrays(found)
        footprints = tuple(c.footprint(a.name) for c, a in zip(found, arrays, strict=True))
        expanded, private = private_arrays([a for a in accesses if is_private(a.address)])
        types = element_types(flat, subscripts | private)
        arrays = tuple(replace(a, element=types.get(a.name, a.element)) for a in (*arrays, *expanded))
        scop = Scop(arrays, tuple(s.statement(n, subscripts | private, types) for n, s in enumerate(flat)))
        scop = unroll_reductions(scop)
        self.guards += self.proofs
        self.guards += guards_for(self.outer, tuple(self.demands), self.sample, self.facts)
        self._separate(found)
        self._numbers()
        self._tables()
        self.guards += disjoint_cells(scop, limits(tuple(g for g in self.guards if isinstance(g, Relation))),
                                      self.sample)
        rejoin, passed = self._rejoin(), tuple(self._passed(expanded, private))
        looked_at = self._looked_at(scop, footprints, passed)
        trips = Trips(self.outer.numerator, self.outer.divisor)
        needed = self._needed(rejoin, trips, found, scop)
        live_ins = self._witnessed(needed) + tuple(self.lanes[p.symbol] for p in passed)
        region = Region(header, displaced, live_ins, trips, tuple(dict.fromkeys(self.guards)), rejoin, footprints, scop,
                        original_iterations=left, rollback=() if self.outer.zeros else None,
                        memory_backed=self.memory_backed, register_carried=passed,
                        speculative_accesses=self.outer.speculative_accesses, nan_free=looked_at,
                        dead_stack_cells=tuple(self._dead_stack_cells()),
                        dead_registers=tuple(sorted(self.dead & self.outer.opaque)))
        return with_room(region, self.sample, self.sample[TRIPS])

    def _dead_stack_cells(self) -> Iterator[Cell]:
        for slot in sorted(self.outer.opaque - self.restored):
            if slot.startswith(SLOT):
                yield Cell("rsp", *slot_range(slot))

    def _looked_at(self, scop: Scop, footprints: tuple[Footprint, ...], passed: tuple[RegisterCarried, ...]) -> (
            tuple[NanFree, ...]):
        """Where the guard looks for NaNs: every one that comes up later is made by an invalid operation, which raises
        the flag by which ``Region.rollback`` is taken back, and is the default one."""
        if not (self.reordered or self.outer.unordered):
            return ()
        found = nan_free_guards(scop, footprints, passed, self.sample)
        if found is None and self.reordered:
            raise KeepOperandOrder
        if found is None:
            raise Rejected(Reason.DATA_DEPENDENT_BRANCH, "for a root of what may be a NaN")
        return found

    def _iterations_left(self) -> int:
        known, restored = limits(self.proofs), self.restored
        try:
            return iterations_left(self.outer, restored, known)
        except Rejected as refusal:
            for left in range(1, MOST_LEFT + 1):
                needs = running(self.outer, left, self.sample)
                with suppress(Rejected):
                    found = iterations_left(self.outer, restored, replace(known, facts=(*known.facts, *needs)))
                    self.guards += [Relation(n, False, "inner loops run in the last iterations") for n in needs]
                    return found
            more = carried_on(self.outer, restored, known) - self.facts.kept
            if more:
                raise KeepLiveOut(more) from None
            raise refusal

    def _sample_trips(self) -> int:
        trips, rest = divmod(self.outer.numerator.evaluate(self.sample), self.outer.divisor)
        if rest or trips < 2:
            raise Rejected(Reason.TRIP_COUNT if rest else Reason.TOO_SHORT, "at the captured values")
        return trips

    # -- what the specialisation relies on ----------------------------------------------------------------------

    def always(self, distance: Linear, expected: int) -> bool:
        """Whether ``distance`` is ``expected``, if need be by specialising on it
        (memopt.lifting.reroll.proofs.Captured)."""
        if distance.is_constant:
            return distance.constant == expected
        entered = distance.substitute({TRIPS: self.outer.numerator}) if self.outer.divisor == 1 else distance
        if TRIPS in entered.symbols or self.remaining.step(entered):
            return False
        if entered.is_constant:
            return entered.constant == expected
        moving = self.remaining.moves(entered) if entered != distance else frozenset[str]()
        self.asked[entered] = AssumeEqual(entered, moving)
        return entered.evaluate(self.sample) == expected

    def answered(self, found: Callable[[], _Found]) -> _Found:
        """What ``found`` makes of what is ``always`` so; asks for all equations at once that make it so."""
        try:
            made = found()
        except Rejected:
            if not self.asked:
                raise
        if self.asked:
            raise AssumeAll(tuple(self.asked.values()))
        return made

    def alike(self, one: Scalar, two: Scalar) -> bool:
        """Whether two live-in operands hold the same bits in the captured state
        (memopt.lifting.reroll.proofs.Captured)."""
        bits = [self.facts.vectors.get(s.register, b"")[s.offset:][:s.element.size] for s in (one, two)]
        return bits[0] == bits[1] != b""

    def equate(self, one: Scalar, two: Scalar) -> None:
        first, second = (self._lane(s) for s in (one, two))
        self.guards.append(Relation(first - second, True, "copies of a loop use equal numbers"))

    def bits(self, cell: tuple[Linear, int]) -> int | None:
        """What a cell holds in the captured state, None when no guard can look at it
        (memopt.lifting.reroll.splat_constants)."""
        address, size = cell
        base = address.terms[0][0] if address.terms else ""
        if size not in (4, 8) or len(address.terms) > 1 or any(c != 1 for _, c in address.terms) or (
                base and (base not in GENERAL or base in self.outer.opaque)):
            return None
        if base not in ("", "rsp") and not self.dereferenceable.always(address, size):
            return None
        return self.facts.peek(address.evaluate(self.sample), 8 * size)

    def same_cells(self, one: tuple[Linear, int], two: tuple[Linear, int]) -> None:
        first, second = map(self._constant, (one, two))
        self.guards.append(Relation(second - first, True, "a constant is the same in all lanes"))

    def _constant(self, cell: tuple[Linear, int]) -> Linear:
        address, size = cell
        location = Cell(address.terms[0][0] if address.terms else "", address.constant, size)
        self.lanes[str(location)] = LiveIn(str(location), location, size)
        self.constants[str(location)] = Interval(address, address + size)
        return Linear.symbol(str(location))

    def _lane(self, scalar: Scalar) -> Linear:
        lane = Lane(scalar.register, scalar.offset, scalar.element.size)
        self.lanes[str(lane)] = LiveIn(str(lane), lane, scalar.element.size)
        return Linear.symbol(str(lane))

    def _numbers(self) -> None:
        """Registers hold the numbers by which branches are decided, or to which each iteration sets them."""
        for location, bits in self.outer.zeros.items():
            if location:
                element = ElementType.F64 if bits == 64 else ElementType.F32
                self._hold(location, element, bytes(element.size), "operands of square roots are compared with zero")
        for (location, element), held in self.outer.fixed.items():
            self._hold(location, element, held, "a register holds one number throughout")

    def _hold(self, location: str, element: ElementType, number: bytes, why: str) -> None:
        name, _, lane = location.partition(".")
        held = self._lane(Scalar(name, element, 8 * int(lane)))
        self.guards.append(Relation(held - int.from_bytes(number, "little", signed=True), True, why))

    def _tables(self) -> None:
        """Words that were taken for linear are what they were when the program was captured."""
        for table, pointers in self.outer.tables.items():
            if any((p.evaluate(self.sample) - table.low) % WORD for p in pointers):
                raise Rejected(Reason.DATA_DEPENDENT_ADDRESS, "words of a table are cut")
            moving = tuple(p for p in pointers if not p.is_constant)
            self.guards.append(Progression(table.low, table.high, table.first, table.step, moving,
                                           "rows follow each other as before"))

    def _check_equations(self) -> None:
        for symbol in self.facts.parameters:
            if self.remaining.step(Linear.symbol(symbol)):
                raise NotAParameter(symbol)
        for linear, value in self.facts.equations:
            if self.remaining.step(linear):
                raise Rejected(Reason.NON_AFFINE, f"{linear} changes with each iteration of the outer loop")
            self.guards.append(Relation(linear - value, True, "specialised"))

    # -- arrays -------------------------------------------------------------------------------------------------

    def _unify(self, found: tuple[Cluster, ...]) -> None:
        """Different base symbols, touching footprints: one array, with the distance of its bases guarded."""
        needs: list[AssumeEqual] = []
        for first, second in combinations(found, 2):
            if not (first.written or second.written) or first.symbols == second.symbols:
                continue
            if (first.low.evaluate(self.sample) < second.high.evaluate(self.sample)
                    and second.low.evaluate(self.sample) < first.high.evaluate(self.sample)):
                difference = first.symbols - second.symbols
                invariant = self.remaining.invariant(difference)
                if not invariant.is_constant and (self.facts.by_trips or not parametric(invariant)):
                    needs.append(AssumeEqual(invariant, self.remaining.moves(difference)))
                elif self.facts.by_trips:
                    raise Rejected(Reason.OVERLAP, "their distance changes with each iteration")
                else:
                    raise ExpressByTrips
        if needs:
            raise AssumeAll(tuple(needs))

    def _arrays(self, found: tuple[Cluster, ...]) -> tuple[tuple[Array, ...], dict[ByteAccess, Access]]:
        arrays: list[Array] = []
        subscripts: dict[ByteAccess, Access] = {}
        for number, cluster in enumerate(found):
            self.guards += [Relation(n, False, "the array does not reach further") for n in cluster.needs]
            array, accesses, guards = delinearise(cluster, f"A{number}", self.sample)
            arrays.append(array)
            subscripts |= accesses
            self.guards += guards
        return tuple(arrays), subscripts

    def _separate(self, found: tuple[Cluster, ...]) -> None:
        """Arrays, the stack cells the loop uses and its live-in cells share no byte."""
        for first, second in combinations(found, 2):
            if first.written or second.written:
                self._disjoint(first.interval, second.interval, "arrays do not overlap")
        private = self._private()
        for interval, written in private:
            for cluster in found:
                if cluster.written and not written:
                    self._not_stored(cluster.interval, interval)
                if cluster.written or written:
                    self._disjoint(cluster.interval, interval, "arrays do not overlap the loop's own variables")
        for (one, first_written), (two, second_written) in combinations(private, 2):
            if first_written or second_written:
                self._disjoint(one, two, "a variable read through a pointer is not one on the stack")

    def _not_stored(self, array: Interval, cell: Interval) -> None:
        """A cell that was taken for a number, and where the loop may store to it is none."""
        low, high = (b.evaluate(self.sample) for b in (array.low, array.high))
        address = cell.low.evaluate(self.sample)
        if low < cell.high.evaluate(self.sample) and address < high and address not in self.facts.written and (
                cell.low - self.facts.symbol("rsp")).terms:
            raise TreatAsData(address)

    def _private(self) -> list[tuple[Interval, bool]]:
        """Cells outside the arrays that the loop reads or writes: (interval, written)."""
        stack = self.facts.symbol("rsp")
        offsets = [(int(p[1]), int(p[2]) // 8) for s in self.outer.slots if (p := s.split(":"))]
        result = [(Interval(Linear.of(t.low), Linear.of(t.high)), False) for t in self.outer.tables]
        result += [(interval, False) for interval in self.constants.values()]
        for address, width in self.facts.cells.values():
            distance = address - stack
            if distance.is_constant:
                offsets.append((distance.constant, width // 8))
            else:
                result.append((Interval(address, address + width // 8), False))
        if offsets:
            low, high = min(o for o, _ in offsets), max(o + w for o, w in offsets)
            result.append((Interval(stack + low, stack + high), bool(self.outer.slots)))
        return result

    def _disjoint(self, one: Interval, two: Interval, why: str) -> None:
        gaps = (two.low - one.high, one.low - two.high)
        if any(g.is_constant and g.constant >= 0 for g in gaps):
            return
        if all(g.evaluate(self.sample) < 0 for g in gaps):
            raise Rejected(Reason.OVERLAP, why)
        self.guards.append(Disjoint(one, two, why))

    # -- live-ins, rejoin --------------------------------------------------------------------------

    def _rejoin(self) -> tuple[Rejoin, ...]:
        result = []
        for location, step in sorted(self.outer.steps.items()):
            if location in GENERAL:
                value = Linear.symbol(location) + Linear.symbol(LIMIT, step)
                result.append(Rejoin(Register(location), value, 4 if location in self.outer.narrow else 8))
            elif location.startswith(SLOT):
                _, offset, bits = location.split(":")
                if int(bits) < 32:
                    raise Rejected(Reason.UNSUPPORTED_INSTRUCTION, f"a {bits}-bit counter on the stack")
                symbol = self._slot_symbol(int(offset))
                value = Linear.symbol(symbol) + Linear.symbol(LIMIT, step)
                result.append(Rejoin(Cell("rsp", int(offset), int(bits) // 8), value, int(bits) // 8))
        return tuple(result)

    def _passed(self, arrays: tuple[Array, ...], subscripts: Mapping[ByteAccess, Access]) -> Iterator[RegisterCarried]:
        for each in self.private_backed:
            names = {s.array for a, s in subscripts.items() if private_symbol(a.address) == private_symbol(each.cell)}
            found = [a for a in arrays if a.name in names]
            if len(found) != 1 or found[0].strides or found[0].element.size != each.width:
                raise Rejected(Reason.CARRIED_VALUE, f"{each.location} is used in parts, or not at all")
            symbol = f"{each.location} at the header"
            self.lanes[symbol] = LiveIn(symbol, each.location, each.width)
            yield RegisterCarried(each.location, each.width, found[0].name, symbol)

    def _slot_symbol(self, offset: int) -> str:
        address = self.facts.symbol("rsp") + offset
        return max((w, s) for s, (a, w) in self.facts.cells.items() if a == address)[1]

    def _needed(self, rejoin: tuple[Rejoin, ...], trips: Trips, found: tuple[Cluster, ...], scop: Scop) -> (
            dict[str, LiveIn]):
        used = set(trips.numerator.symbols) | {s for r in rejoin for s in r.value.symbols}
        used |= {s for statement in scop.statements for s in symbols_of(statement)}
        used |= {s for c in found for s in c.symbols.symbols}
        used |= {s for m in self.memory_backed for x in (m.cell, m.near) if x is not None for s in x.symbols}
        for guard in self.guards:
            parts = ((guard.expression,) if isinstance(guard, Relation) else
                     guard.pointers if isinstance(guard, Progression) else
                     (guard.first.low, guard.first.high, guard.second.low, guard.second.high))
            used |= {s for p in parts for s in p.symbols}
        for symbol in used:
            if isinstance(symbol, Quotient):
                raise Rejected(Reason.NON_AFFINE, f"{symbol.numerator} is divided by {symbol.divisor} and rounded")
            if symbol.startswith(WIDE):
                raise Rejected(Reason.UNPROVED, "a value that is widened does not wrap around")
        needed: dict[str, LiveIn] = {}
        self._need(needed, used - {TRIPS, LIMIT})
        return needed

    def _need(self, needed: dict[str, LiveIn], symbols: Iterable[str]) -> None:
        """Add the live-in values of ``symbols``, and of the pointers to them."""
        needed |= {s: self._live_in(s) for s in symbols if s not in needed}
        while pointers := {x.location.base for x in needed.values() if isinstance(x.location, Cell)
                           and x.location.base in self.facts.cells} - needed.keys():
            needed |= {s: self._live_in(s) for s in pointers}

    def _witnessed(self, needed: dict[str, LiveIn]) -> tuple[LiveIn, ...]:
        """Each cell behind a pointer with what is guarded before it is read (memopt.lifting.scop.dereferenceable)."""
        done: dict[str, LiveIn] = {}
        while pending := [needed[s] for s in sorted(needed.keys() - done.keys())]:
            for each in pending:
                found = self._witness(each, done)
                if found is not None:
                    self.guards += [Relation(c, False, "the loop reads the cell") for c in found]
                    after = frozenset(s for c in found for s in c.symbols)
                    self._need(needed, after - {TRIPS})
                    done[each.symbol] = replace(each, after=after)
            if all(x.symbol not in done for x in pending):
                raise TreatAsData(self._cell_of(pending[0]).evaluate(self.sample))
        return tuple(done[s] for s in sorted(done))

    def _witness(self, each: LiveIn, done: Mapping[str, LiveIn]) -> tuple[Linear, ...] | None:
        """Conditions on registers and on what is in ``done`` that are enough; None when none are."""
        if not isinstance(each.location, Cell) or each.location.base in ("", "rsp"):
            return ()
        def early(symbol: str) -> bool:
            around = self.outer.numerator.symbols if symbol == TRIPS else {symbol}
            return all(s in done or register_of(s) in GENERAL for s in around)

        if not early(each.location.base):
            return None
        ways = self.dereferenceable.of(self._cell_of(each), each.width)
        return min((w for w in ways if all(early(s) for c in w for s in c.symbols)), key=len, default=None)

    def _cell_of(self, each: LiveIn) -> Linear:
        known = self.constants.get(each.symbol)
        return self.facts.cells[live_in(each.symbol)][0] if known is None else known.low

    def _live_in(self, symbol: str) -> LiveIn:
        if symbol in self.lanes:
            return self.lanes[symbol]
        if (register := register_of(symbol)) in GENERAL:
            return LiveIn(symbol, Register(register), 8 if live_in(symbol) == register else 1)
        address, bits = self.facts.cells[live_in(symbol)]
        match address:
            case Linear((), displacement):
                return LiveIn(symbol, Cell("", displacement, bits // 8), bits // 8)
            case Linear(((base, 1),), displacement) if base in GENERAL and base not in self.outer.opaque:
                return LiveIn(symbol, Cell(base, displacement, bits // 8), bits // 8)
            case Linear(((base, 1),), displacement) if self.facts.cells.get(base, (0, 0))[1] == 64:
                return LiveIn(symbol, Cell(base, displacement, bits // 8), bits // 8)
        raise Rejected(Reason.NON_AFFINE, f"a bound or stride is read through the pointer {address}")


def _access(mirror: MemoryBacked) -> ByteAccess:
    """The cell at every header that a version may come to."""
    cell = mirror.cell.substitute({LIMIT: Linear.symbol("i")})
    return ByteAccess(cell, (("i", Linear.symbol(TRIPS)),), INTEGERS[8 * mirror.width], written=False)
