"""From a loop in machine code and a captured state to a region: the SCoP with all that makes it true.

The stages: symbolic execution (execute), register tricks undone (statements), unrolling undone (reroll), arrays
found (arrays). Facts that specialise the region on captured values are found on the way: an attempt that needs one
starts again with it. What is then left unproved becomes a guard when it holds for the captured state, or the
region is rejected.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations

from memopt.analysis.algebra import LOOP_COUNTER, Obligation
from memopt.analysis.aliasing import Aliasing
from memopt.analysis.arrays import ByteAccess, Cluster, clusters, delinearise
from memopt.analysis.elements import split
from memopt.analysis.execute import Executor, OuterLoop
from memopt.analysis.expressions import INTEGERS
from memopt.analysis.facts import GENERAL, LANES, SLOT, Facts
from memopt.analysis.flatten import element_types, flatten, private_arrays, symbols_of
from memopt.analysis.liveness import MOST_LEFT, iterations_left, running
from memopt.analysis.mirrors import Alone
from memopt.analysis.nest import bounds
from memopt.analysis.obligations import guards_for, limits
from memopt.analysis.overlays import whole_rows
from memopt.analysis.parameters import PARAMETER, Sample, is_parameter, live_in
from memopt.analysis.privates import PRIVATE, is_private, private_sample, private_symbol
from memopt.analysis.recovery import recover
from memopt.analysis.remaining import Remaining
from memopt.analysis.reroll import reroll
from memopt.analysis.restarts import Defer, Inline, Moves, Promote, RelateToTrips, Specialise, Split, Steady
from memopt.analysis.rounding import without_quotients
from memopt.analysis.short_sums import written_out
from memopt.analysis.statements import StatementLoop, statements_of
from memopt.analysis.values import constant_of
from memopt.ir.graph import FlowGraph, Loop, LoopForest
from memopt.ir.linear import Linear, Quotient
from memopt.ir.operations import Block
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import (
    Cell,
    Disjoint,
    Guard,
    Interval,
    Lane,
    LiveIn,
    Mirror,
    Passed,
    Region,
    Register,
    Rejoin,
    Relation,
    Trips,
)
from memopt.ir.scop import LIMIT, TRIPS, Access, Array, ElementType, Scalar, Scop

ROOM = 2  # times what is written at the captured values: the next entry may come with more iterations
ATTEMPTS = 192
MOST_TRIPS = 1 << 16  # a guard that lets more pass says nothing about sizes


@dataclass(frozen=True, slots=True)
class Code:
    """The loop's surroundings: ``lift`` gives the operations of the basic block at an address. ``calls``: copies of
    what the loop calls are among them."""

    graph: FlowGraph
    forest: LoopForest
    lift: Callable[[int], Block]
    calls: bool = False


@dataclass(frozen=True, slots=True)
class Lifted:
    """A region with the intermediate forms that led to it (golden tests, ``--print-after``)."""

    region: Region
    outer: OuterLoop
    statements: StatementLoop
    entry: Sample  # values of live-in symbols

    def trips(self, entry: Sample) -> int:
        """R where a loop starts that was met at ``entry``, perhaps in its middle: as many as guards let pass at these
        sizes, where they say how many; 0 where nothing is known."""
        count = self.region.trips
        known = {s: entry[live_in(s)] for live in self.region.live_ins if live_in(s := live.symbol) in entry}
        if not count.numerator.symbols <= known.keys():
            return 0
        left = count.numerator.evaluate(known) // count.divisor
        known = {s: v for s, v in known.items() if is_parameter(s)} | {TRIPS: 0}
        most = [f.evaluate(known) // -c for f in self.region.facts
                if f.symbols <= known.keys() and (c := f.coefficient(TRIPS)) < 0]
        return max([left, *(m for m in [min(most, default=0)] if m <= MOST_TRIPS)])


def lift_region(code: Code, loop: Loop, registers: Mapping[str, int], peek: Callable[[int, int], int],
                displaced: bytes, vectors: Mapping[str, bytes] | None = None,
                patient: Callable[[], bool] = lambda: True, earlier: Sequence[Sample] = ()) -> Lifted:
    """Lift ``loop`` as captured at its header.

    ``registers``: the 64-bit general registers as unsigned numbers; ``vectors``: what is known of the 32 bytes of
    each vector register ("xmm3"). ``peek(address, bits)`` reads memory of the
    captured state as a signed number. ``earlier``: what ``Lifted.entry`` was at entries whose values the new code was
    not made for. Raises Rejected with the reason when the loop is outside what is modelled, or
    takes longer than ``patient()`` says.
    """
    signed = {r: (registers[r] + (1 << 63)) % (1 << 64) - (1 << 63) for r in GENERAL}
    facts = functools.partial(Facts, signed, peek, vectors or {}, earlier=earlier, calls=code.calls)

    def go_on() -> None:
        if not patient():
            raise Rejected(Reason.NO_PLAN, "understanding the loop takes too long")

    try:
        return _with_facts(code, loop, facts(), displaced, go_on)
    except Rejected as plain:
        try:
            return _with_facts(code, loop, facts(eager=True), displaced, go_on)
        except Rejected:
            raise plain from None


def _with_facts(code: Code, loop: Loop, facts: Facts, displaced: bytes, go_on: Callable[[], None]) -> Lifted:
    for _ in range(ATTEMPTS):
        go_on()
        try:
            return _attempt(code, loop, facts, displaced, go_on)
        except Specialise as need:
            if need.factor and facts.differs(need.linear):  # a stride: every size has its own version
                facts = facts.specialised()
            else:
                facts.add_equation(need.linear, need.unknowns, need.symbolic)
        except Promote as need:
            facts.add_cell(need.address, need.width)
        except Split as need:
            facts.split[need.address] = facts.split.get(need.address, 0) + 1
        except Defer as need:
            facts.deferred.add(need.address)
        except Inline as need:
            facts.inlined.add(need.header)
        except Steady as need:
            facts.lanes |= need.lanes
        except RelateToTrips:
            facts.by_trips = True
        except Moves as need:
            facts = Facts(facts.registers, facts.peek, facts.vectors, eager=facts.eager, earlier=facts.earlier,
                          moving=facts.moving | {need.symbol})
        except RecursionError:
            raise Rejected(Reason.NON_AFFINE, "its values are nested too deeply") from None
    raise Rejected(Reason.NON_AFFINE, "too many values would have to be specialised")


def _attempt(code: Code, loop: Loop, facts: Facts, displaced: bytes, go_on: Callable[[], None]) -> Lifted:
    executor = Executor(code.graph, code.forest, code.lift, facts)
    outer = executor.outermost(loop)
    remaining = Remaining(facts, outer.steps, outer.numerator, outer.divisor)
    outer = _related(outer, remaining)
    builder = _Builder(facts, outer, remaining)
    aliasing = Aliasing(outer.ranges, builder.sample, limits(builder.proofs), go_on=go_on)
    steady = _steady_lanes(outer, facts)
    try:
        recovered = recover(outer.node, aliasing, builder.demands)
    except Rejected as refused:
        if refused.reason is Reason.CARRIED_VALUE and steady:
            raise Steady(steady) from None
        raise
    places = [m.location for m in recovered.mirrors] + [a.location for a in recovered.alone]
    carried = {f"{p.register}.{p.offset // 8}" for p in places if isinstance(p, Lane)}
    if carried & steady.keys():
        raise Steady({lane: number for lane, number in steady.items() if lane in carried})
    statements, builder.settled = recovered.loop, recovered.settled
    builder.mirrors, builder.alone = recovered.mirrors, recovered.alone
    builder.sample |= private_sample(s for c in statements_of(statements) for a in c.accesses for s in a.symbols
                                     if s.startswith(PRIVATE))
    statements, rows = whole_rows(split(statements, builder.sample, outer.ranges), aliasing)
    aliasing = replace(aliasing, ranges={**aliasing.ranges, **rows})
    statements = reroll(statements, aliasing, builder)
    statements = without_quotients(statements, aliasing.limits)
    region = builder.region(loop.header, displaced, statements, tuple(aliasing.assumed))
    return Lifted(region, outer, statements, facts.samples())


def _steady_lanes(outer: OuterLoop, facts: Facts) -> dict[str, int]:
    """Vector lanes that each iteration sets to the number that they hold already: cleared for the next one."""
    found: dict[str, int] = {}
    for carried in outer.node.carried:
        name, _, lane = carried.location.partition(".")
        held = facts.vectors.get(name, b"")[8 * int(lane):][:8] if carried.location in LANES else b""
        number = constant_of(carried.following)
        if number is not None and held == (number % (1 << 64)).to_bytes(8, "little"):
            found[carried.location] = number % (1 << 64)
    return found


def _related(outer: OuterLoop, remaining: Remaining) -> OuterLoop:
    """``outer`` with inner bounds over counters and R alone; asks for the equations that make them so."""
    def live(bound: Linear) -> Linear:
        return Linear(tuple(t for t in bound.terms if t[0] != TRIPS and not t[0].startswith((LOOP_COUNTER, PARAMETER))))

    inner = bounds(outer.node)
    if remaining.facts.by_trips or any(remaining.moves(live(b)) for b in inner.union(*map(_numerators, inner))):
        outer = outer.rewritten(remaining.by_trips())
    inner = bounds(outer.node)
    for bound in map(live, inner.union(*(_numerators(b) for b in inner))):
        if not bound.is_constant:
            invariant = remaining.invariant(bound)
            if invariant.is_constant:
                raise Rejected(Reason.TRIP_COUNT, f"the bound {bound} does not follow from the iterations that remain")
            raise Specialise(invariant, remaining.moves(bound), symbolic=True)
    return outer


def _access(mirror: Mirror) -> ByteAccess:
    """The cell at every header that a version may come to."""
    cell = mirror.cell.substitute({LIMIT: Linear.symbol("i")})
    return ByteAccess(cell, (("i", Linear.symbol(TRIPS)),), INTEGERS[8 * mirror.width], written=False)


def _numerators(linear: Linear) -> frozenset[Linear]:
    """What is divided and rounded in ``linear``."""
    inside = frozenset(q.numerator for q in linear.quotients)
    return inside.union(*map(_numerators, inside))


@dataclass
class _Builder:
    facts: Facts
    outer: OuterLoop
    remaining: Remaining

    def __post_init__(self) -> None:
        self.sample = self.facts.samples()
        self.sample[TRIPS] = self._sample_trips()
        self.proofs = guards_for(self.outer, self.outer.obligations, self.sample, self.facts)
        self.demands: list[Obligation] = []  # beyond those of symbolic execution
        self.guards: list[Guard] = []
        self.lanes: dict[str, LiveIn] = {}
        self.mirrors: tuple[Mirror, ...] = ()
        self.alone: tuple[Alone, ...] = ()
        self.settled: frozenset[str] = frozenset()

    def region(self, header: int, displaced: bytes, statements: StatementLoop,
               assumed: tuple[tuple[Interval, Interval], ...]) -> Region:
        self._check_equations()
        left = self._iterations_left()
        for one, two in assumed:
            self._disjoint(one, two, "arrays do not overlap")
        flat = flatten(statements)
        accesses = [a for s in flat for a in s.accesses]
        found = clusters((*(a for a in accesses if not is_private(a.address)), *map(_access, self.mirrors)),
                         self.sample)
        self._unify(found)
        arrays, subscripts = self._arrays(found)
        footprints = tuple(c.footprint(a.name) for c, a in zip(found, arrays, strict=True))
        expanded, private = private_arrays([a for a in accesses if is_private(a.address)])
        types = element_types(flat, subscripts | private)
        arrays = tuple(replace(a, element=types.get(a.name, a.element)) for a in (*arrays, *expanded))
        scop = Scop(arrays, tuple(s.statement(n, subscripts | private, types) for n, s in enumerate(flat)))
        scop = written_out(scop)
        self.guards += self.proofs
        self.guards += guards_for(self.outer, tuple(self.demands), self.sample, self.facts)
        self._separate(found)
        self._numbers()
        guards = tuple(dict.fromkeys(self.guards))
        rejoin, passed = self._rejoin(), tuple(self._passed(expanded, private))
        trips = Trips(self.outer.numerator, self.outer.divisor)
        live_ins = self._live_ins(guards, rejoin, trips, found, scop) + tuple(self.lanes[p.symbol] for p in passed)
        written = [f.interval for f in footprints if f.written]
        room = tuple(ROOM * (i.high - i.low).evaluate(self.sample) for i in written)
        return Region(header, displaced, live_ins, trips, guards, rejoin, footprints, scop, left=left,
                      retried=room if self.outer.zeros else None, mirrors=self.mirrors,
                      passed=passed, wider=self.outer.wider)

    def _iterations_left(self) -> int:
        known, restored = limits(self.proofs), self.settled
        try:
            return iterations_left(self.outer, restored, known)
        except Rejected as refusal:
            for left in range(1, MOST_LEFT + 1):
                needs = running(self.outer, left, self.sample)
                with suppress(Rejected):
                    found = iterations_left(self.outer, restored, replace(known, facts=(*known.facts, *needs)))
                    self.guards += [Relation(n, False, "inner loops run in the last iterations") for n in needs]
                    return found
            raise refusal

    def _sample_trips(self) -> int:
        trips, rest = divmod(self.outer.numerator.evaluate(self.sample), self.outer.divisor)
        if rest or trips < 2:
            raise Rejected(Reason.TRIP_COUNT if rest else Reason.TOO_SHORT, "at the captured values")
        return trips

    # -- what the specialisation relies on ----------------------------------------------------------------------

    def always(self, distance: Linear, expected: int) -> bool:
        """Whether ``distance`` is ``expected``, if need be by specialising on it (memopt.analysis.reroll.Captured)."""
        if distance.is_constant:
            return distance.constant == expected
        entered = distance.substitute({TRIPS: self.outer.numerator}) if self.outer.divisor == 1 else distance
        if TRIPS in entered.symbols or self.remaining.step(entered):
            return False
        if entered.is_constant:
            return entered.constant == expected
        raise Specialise(entered, self.remaining.moves(entered) if entered != distance else frozenset())

    def alike(self, one: Scalar, two: Scalar) -> bool:
        """Whether two live-in operands hold the same bits in the captured state (memopt.analysis.reroll.Captured)."""
        bits = [self.facts.vectors.get(s.register, b"")[s.offset:][:s.element.size] for s in (one, two)]
        return bits[0] == bits[1] != b""

    def equate(self, one: Scalar, two: Scalar) -> None:
        first, second = (self._lane(s) for s in (one, two))
        self.guards.append(Relation(first - second, True, "copies of a loop use equal numbers"))

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

    def _check_equations(self) -> None:
        for symbol in self.facts.parameters:
            if self.remaining.step(Linear.symbol(symbol)):
                raise Moves(symbol)
        for linear, value in self.facts.equations:
            if self.remaining.step(linear):
                raise Rejected(Reason.NON_AFFINE, f"{linear} changes with each iteration of the outer loop")
            self.guards.append(Relation(linear - value, True, "specialised"))

    # -- arrays -------------------------------------------------------------------------------------------------

    def _unify(self, found: tuple[Cluster, ...]) -> None:
        """Different base symbols, touching footprints: one array, with the distance of its bases guarded."""
        for first, second in combinations(found, 2):
            if not (first.written or second.written) or first.symbols == second.symbols:
                continue
            if (first.low.evaluate(self.sample) < second.high.evaluate(self.sample)
                    and second.low.evaluate(self.sample) < first.high.evaluate(self.sample)):
                difference = first.symbols - second.symbols
                invariant = self.remaining.invariant(difference)
                if not invariant.is_constant:
                    raise Specialise(invariant, self.remaining.moves(difference))
                if self.facts.by_trips:
                    raise Rejected(Reason.OVERLAP, "their distance changes with each iteration")
                raise RelateToTrips

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
                if cluster.written or written:
                    self._disjoint(cluster.interval, interval, "arrays do not overlap the loop's own variables")
        for (one, first_written), (two, second_written) in combinations(private, 2):
            if first_written or second_written:
                self._disjoint(one, two, "a variable read through a pointer is not one on the stack")

    def _private(self) -> list[tuple[Interval, bool]]:
        """Cells outside the arrays that the loop reads or writes: (interval, written)."""
        stack = self.facts.symbol("rsp")
        offsets = [(int(p[1]), int(p[2]) // 8) for s in self.outer.slots if (p := s.split(":"))]
        result = []
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

    def _passed(self, arrays: tuple[Array, ...], subscripts: Mapping[ByteAccess, Access]) -> Iterator[Passed]:
        for each in self.alone:
            names = {s.array for a, s in subscripts.items() if private_symbol(a.address) == private_symbol(each.cell)}
            found = [a for a in arrays if a.name in names]
            if len(found) != 1 or found[0].strides or found[0].element.size != each.width:
                raise Rejected(Reason.CARRIED_VALUE, f"{each.location} is used in parts, or not at all")
            symbol = f"{each.location} at the header"
            self.lanes[symbol] = LiveIn(symbol, each.location, each.width)
            yield Passed(each.location, each.width, found[0].name, symbol)

    def _slot_symbol(self, offset: int) -> str:
        address = self.facts.symbol("rsp") + offset
        return max((w, s) for s, (a, w) in self.facts.cells.items() if a == address)[1]

    def _live_ins(self, guards: tuple[Guard, ...], rejoin: tuple[Rejoin, ...], trips: Trips,
                  found: tuple[Cluster, ...], scop: Scop) -> tuple[LiveIn, ...]:
        used = set(trips.numerator.symbols) | {s for r in rejoin for s in r.value.symbols}
        used |= {s for statement in scop.statements for s in symbols_of(statement)}
        used |= {s for c in found for s in c.symbols.symbols}
        used |= {s for m in self.mirrors for x in (m.cell, m.near) if x is not None for s in x.symbols}
        for guard in guards:
            parts = ((guard.expression,) if isinstance(guard, Relation) else
                     (guard.first.low, guard.first.high, guard.second.low, guard.second.high))
            used |= {s for p in parts for s in p.symbols}
        for rounded in used:
            if isinstance(rounded, Quotient):
                raise Rejected(Reason.NON_AFFINE, f"{rounded.numerator} is divided by {rounded.divisor} and rounded")
        return tuple(self._live_in(s) for s in sorted(used - {TRIPS, LIMIT}))

    def _live_in(self, symbol: str) -> LiveIn:
        if symbol in self.lanes:
            return self.lanes[symbol]
        if live_in(symbol) in GENERAL:
            return LiveIn(symbol, Register(live_in(symbol)))
        address, bits = self.facts.cells[live_in(symbol)]
        match address:
            case Linear((), displacement):
                return LiveIn(symbol, Cell("", displacement, bits // 8), bits // 8)
            case Linear(((base, 1),), displacement) if base in GENERAL and base not in self.outer.opaque:
                return LiveIn(symbol, Cell(base, displacement, bits // 8), bits // 8)
        raise Rejected(Reason.NON_AFFINE, f"a bound or stride is read through the pointer {address}")
