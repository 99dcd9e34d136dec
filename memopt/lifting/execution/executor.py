"""Symbolic execution of a loop nest: one iteration of each loop, with a summary in place of each inner loop.

Example, with rcx = 0 at the first header::

    k: movsd xmm0, [rdi]; addsd xmm1, xmm0; add rdi, 8; inc rcx; cmp rcx, 100; jne k

is the LoopNode "100 iterations; v0 = load [rdi + 8*k]; xmm1 is carried and becomes xmm1 + v0", and after the loop
rdi is ``rdi + 800`` and xmm1 is ``Final``.

In: the flow graph, its loops, the operations of its blocks, the assumptions of this attempt. Out: an ``OuterLoop``.
Raises a request (memopt.lifting.values.requests) where one more assumption would help, else Rejected.

Each loop takes three steps. ``induction`` finds the induction variables and executes one iteration (``iteration``).
``branches`` solves the exit test for the trip count. Both together give the state after the loop.
Sound because induction variables are proved by induction over the iterations. Everything else that an iteration relies
on (a branch that goes one way, a number that does not wrap around) is recorded as an obligation for all iterations.
memopt.lifting.scop.obligations proves it later or makes it a guard.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field, replace

from memopt.ir.frozen import dataclass
from memopt.ir.graph import FlowGraph, Loop, LoopForest
from memopt.ir.linear import Linear
from memopt.ir.operations import Block
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Trips
from memopt.ir.scop import TRIPS, ElementType
from memopt.lifting.execution.assumptions import BASES, LANES, Assumptions, State, Step, bits_of
from memopt.lifting.execution.branches import Branches, is_equality, width_of
from memopt.lifting.execution.entry_invariants import EntryInvariants
from memopt.lifting.execution.induction import Induction, times
from memopt.lifting.execution.invariant_compares import Fixed
from memopt.lifting.execution.iteration import IterationExecutor
from memopt.lifting.execution.iteration_result import Iteration, LoopExit, LoopSummary
from memopt.lifting.execution.memory import MemoryModel
from memopt.lifting.execution.row_tables import RowLoads, row_loads, without_row_loads
from memopt.lifting.execution.sqrt_exits import check_roots, invalid_root
from memopt.lifting.values.algebra import Algebra, Obligation
from memopt.lifting.values.budget import Budget
from memopt.lifting.values.loop_tree import (
    CarriedValue,
    Guarded,
    Item,
    LoadEvent,
    LoopNode,
    Read,
    StoreEvent,
    rewritten,
)
from memopt.lifting.values.requests import AssumeEqual, InlineLoop, NotAParameter, RelateToTrips
from memopt.lifting.values.values import (
    Carried,
    Final,
    Formula,
    Integer,
    LiveVector,
    Node,
    Opaque,
    Substitution,
    Truth,
    Value,
    constant,
    constant_of,
)
from memopt.x86.conditions import CARRY, expand_condition, flag_family


@dataclass(frozen=True, slots=True)
class OuterLoop:
    """The patched loop, lifted. Locations are named as in memopt.lifting.execution.assumptions."""

    node: LoopNode  # runs R times
    steps: dict[str, Step]  # induction variables: location -> what one iteration adds to it
    opaque: frozenset[str]  # all other locations that the loop carries
    # R = numerator / divisor: how often the header is reached from now on (memopt.ir.region.Trips).
    numerator: Linear
    divisor: int
    exit_state: State  # the value of every location when the loop is left
    obligations: tuple[Obligation, ...]
    exit_width: int  # bits of the exit comparison
    ranges: dict[str, Linear]  # counter -> its largest value
    slots: frozenset[str]  # stack slots that the loop writes
    # Some of the iteration follows the exit test (a while loop), so that R counts whole iterations only.
    leaves_first: bool
    narrow: frozenset[str] = frozenset()  # induction variables of 32 bits; the upper half of the register is zero
    # Lanes ("xmm2.0") that must be zero at entry, with the bits that are compared; "" stands for no lane at all. If not
    # empty, the version must roll back when a square root is invalid (memopt.lifting.execution.sqrt_exits).
    zeros: dict[str, int] = field(default_factory=dict)
    fixed: Fixed = field(default_factory=dict)  # lanes that decided a branch, with their numbers
    row_loads: tuple[RowLoads, ...] = ()  # a guard looks at the words that these load
    rows: frozenset[Linear] = frozenset()  # loaded pointers to rows that are the same throughout
    unordered: bool = False  # the exits behind ``zeros`` are taken for a NaN, too
    # Cells that the original reads in some iteration (memopt.lifting.scop.dereferenceable).
    reads: tuple[Read, ...] = ()
    # The items of the last, partial iteration of a while loop before the exit test; None unless Assumptions.to_the_end.
    last: tuple[Item, ...] | None = None

    def rewritten(self, values: dict[str, Linear]) -> OuterLoop:
        """The same loop with live-in symbols replaced by ``values`` in items, ranges, reads and obligations."""
        new = Substitution(values)
        node = rewritten(self.node, new)
        assert isinstance(node, LoopNode)
        obligations = tuple(replace(o, linear=new.linear(o.linear), given=tuple(map(new.linear, o.given)))
                            for o in self.obligations)
        exit_state = {p: new.value(v) for p, v in self.exit_state.items()}
        reads = tuple(replace(r, pointer=new.linear(r.pointer), conditions=tuple(map(new.linear, r.conditions)))
                      for r in self.reads)
        last = None if self.last is None else tuple(rewritten(item, new) for item in self.last)
        loads = tuple(each.rewritten(new) for each in self.row_loads)
        return replace(self, node=node, obligations=obligations, exit_state=exit_state, reads=reads, last=last,
                       row_loads=loads, rows=frozenset(map(new.linear, self.rows)),
                       ranges={c: new.linear(n) for c, n in self.ranges.items()})


class Executor:
    """One attempt to execute a nest symbolically under ``assumptions``.

    Raises a request (memopt.lifting.values.requests) to ask for another attempt, or Rejected. ``lift`` gives the
    operations of the basic block at an address. ``budget`` is checked at each branch inside an iteration. ``roots``:
    see memopt.cfg.cold_calls.root_exits.
    """

    def __init__(self, graph: FlowGraph, forest: LoopForest, lift: Callable[[int], Block], assumptions: Assumptions,
                 budget: Budget | None = None, roots: frozenset[int] = frozenset()) -> None:
        loads: list[LoadEvent] = []
        self.assumptions, self.depth = assumptions, 0
        self.algebra = Algebra(assumptions.samples(), lambda event: loads[event].pointer, _condition)
        self.algebra.widenings.addresses = assumptions.deferred
        self.algebra.written = assumptions.written
        self.algebra.low_bytes = assumptions.low_bytes()
        self.algebra.strides = frozenset(assumptions.strides)
        self.branches = Branches(self.algebra)
        self.algebra.decide = self.branches.decide
        self.memory = MemoryModel(assumptions, self.algebra, loads)
        self.walker = IterationExecutor(graph, forest, lift, self.algebra, self.memory, self.branches, self._inner,
                                        budget or Budget(), roots)
        self.induction = Induction(assumptions, self.algebra, self.memory, self.walker)

    def outermost(self, loop: Loop) -> OuterLoop:
        """Execute ``loop``, the patched one. Raises Rejected(TRIP_COUNT) unless it has one affine trip count."""
        entry: State = {r: Integer(self.assumptions.symbol(r), 64) for r in BASES}
        entry |= {lane: LiveVector(lane) for lane in LANES} | {"d_flag": constant(1, 64)}
        entry |= {flag: Carried("entry", flag) for flag in ("cc_op", "cc_dep1", "cc_dep2", "cc_ndep", "mxcsr_round")}
        for lane, number in self.assumptions.lanes.items():
            entry[lane] = constant(number, 64)
            self.walker.fixed[lane, ElementType.F64] = number.to_bytes(8, "little")
        self.depth = loop.depth
        steps, opaque, walk, header = self.induction.of(loop, entry)
        counter = self.walker.counter(loop)
        chosen, others = self._first_exit(loop, walk)
        if walk.ended or walk.state is None:
            raise Rejected(Reason.TRIP_COUNT, f"the loop at {loop.header:#x} is left in its first iteration")
        leaving, exit_state = chosen.condition, chosen.state
        first, slope = self.branches.crossing(leaving, counter)
        leaves_first = not self._ends_with_exit(walk, chosen, opaque)
        numerator = -first if slope > 0 else first
        if not leaves_first:
            numerator = numerator + abs(slope)
        # ``i < n`` may overshoot n in the last step. Adding the captured overshoot makes the division exact. The guard
        # that the divisor divides the numerator then admits only entries with the same overshoot.
        if not is_equality(leaving):
            numerator = numerator + -self.algebra.at_sample(numerator) % abs(slope)
        trips = self._remaining(numerator, abs(slope))
        self._relate_to_trips(EntryInvariants(self.assumptions, steps, trips.numerator, trips.divisor))
        for distance, _ in self.algebra.distances:
            self._ask_for_invariant(EntryInvariants(self.assumptions, steps, numerator, abs(slope)), distance)
        self.algebra.sample[TRIPS] = self.algebra.at_sample(numerator) // abs(slope)
        self.algebra.ranges[counter] = Linear.symbol(TRIPS) - 1
        last = Linear.symbol(TRIPS) - (1 if leaves_first else 2)
        self._require_after_exit_test(chosen, walk, last - Linear.symbol(counter))
        for formula, earlier in others:
            self._require_not_taken(formula, () if earlier else (last - Linear.symbol(counter),))
            if earlier and leaves_first:
                self._require_not_taken(Substitution({counter: Linear.symbol(TRIPS)}).formula(formula), ())
        for stride in self.assumptions.strides:
            self.algebra.require(Linear.symbol(stride) - 1, "a row of an array has a length")
        node = self._node(loop, walk, Linear.symbol(TRIPS), entry, header, exit_state)
        check_roots(node)
        end = None
        if leaves_first and self.assumptions.to_the_end:
            distances = {p: self._total_advance(step, numerator, abs(slope)) for p, step in steps.items()}
            end = without_row_loads(self._last_iteration(loop, entry, distances, opaque).items)
        loads, node = tuple(dict.fromkeys(row_loads(node))), replace(node, items=without_row_loads(node.items))
        return OuterLoop(node, steps, opaque, trips.numerator, trips.divisor, exit_state,
                         tuple(self.algebra.obligations), width_of(leaving), dict(self.algebra.ranges),
                         frozenset(self.memory.slots), leaves_first, self._zero_extended(entry, steps),
                         dict(self.walker.zeros), dict(self.walker.fixed), loads, frozenset(self.memory.rows),
                         bool(self.walker.unordered), tuple(r for r in walk.reads if not (r.late and walk.roots)), end)

    def _zero_extended(self, entry: State, steps: dict[str, Step]) -> frozenset[str]:
        values = {p: entry[p] for p in steps}
        found = {p: self.algebra.widenings.whole(v.linear) for p, v in values.items() if isinstance(v, Integer)}
        if any(w is not None and w.bits != 32 for w in found.values()):
            raise Rejected(Reason.UNSUPPORTED_INSTRUCTION, "a counter of 8 or 16 bits may wrap around")
        return frozenset(p for p, w in found.items() if w is not None)

    def _remaining(self, numerator: Linear, divisor: int) -> Trips:
        """R, the iterations that remain, as the guard computes it: ``numerator / divisor``, or as it was found before
        it was related to live-in values. Raises Rejected(TRIP_COUNT) where the two are not the same."""
        known = self.assumptions.trips
        if known is None:
            return Trips(numerator, divisor)
        defined = known.numerator.substitute(self.assumptions.solved)
        if numerator != Linear.symbol(TRIPS, divisor) and numerator * known.divisor != defined * divisor:
            raise Rejected(Reason.TRIP_COUNT, f"{numerator} / {divisor} iterations remain, and not {known}")
        return known

    def _relate_to_trips(self, remaining: EntryInvariants) -> None:
        """Raises RelateToTrips where that helps: an equation, or the way to an inner bound, is another one at every
        entry, and follows from R alone."""
        known, sample = self.assumptions, self.algebra.at_sample(remaining.numerator)
        moving = [linear - value for linear, value in known.equations if remaining.step(linear)]
        even = all(remaining.evenly(distance, step) for distance, step in self.algebra.distances)
        if known.trips is None and (moving or not even) and not sample % remaining.divisor:
            for symbol in known.parameters:
                if remaining.step(Linear.symbol(symbol)):
                    raise NotAParameter(symbol)
            # The equations that advance may have put another value in the place of the exit test's counter.
            numerator, missing = remaining.numerator, -remaining.divisor - remaining.step(remaining.numerator)
            for zero in moving:
                if not missing % (step := remaining.step(zero)):
                    numerator, missing = numerator + zero * (missing // step), 0
            raise RelateToTrips(Trips(numerator, remaining.divisor), dict(remaining.steps))

    @staticmethod
    def _ask_for_invariant(remaining: EntryInvariants, distance: Linear) -> None:
        """Request a number for ``distance``, the way to a bound, because a step must divide it.

        Raises AssumeEqual for the entry invariant of ``distance``; Rejected(TRIP_COUNT) if that is a constant already.
        """
        invariant = remaining.invariant(distance)
        if invariant.is_constant:
            raise Rejected(Reason.TRIP_COUNT, f"the step of a loop does not divide {distance}, the way to its bound")
        raise AssumeEqual(invariant, frozenset(s for s, c in distance.terms if c > 0))

    def _inner(self, loop: Loop, entry: State) -> LoopSummary:
        """The summary of a loop that is met inside an iteration of another."""
        steps, opaque, walk, header = self.induction.of(loop, entry)
        counter = self.walker.counter(loop)
        if walk.state is None and len({target for _, target in loop.exits}) > 1:
            raise InlineLoop(loop.header)
        chosen, others = self._first_exit(loop, walk)
        leaving, exit_state = chosen.condition, chosen.state
        turns = self.branches.back_edges(leaving, counter)
        if turns is not None:
            self.algebra.ranges[counter] = turns
            self._require_after_exit_test(chosen, walk, turns - Linear.symbol(counter) - 1)
            for formula, earlier in others:
                self._require_not_taken(formula, () if earlier else (turns - Linear.symbol(counter) - 1,))
        if turns is not None and walk.state is not None and not self._ends_with_exit(walk, chosen, opaque):
            return self._peel_last_iteration(loop, walk, entry, steps, opaque, turns)
        trips = None if turns is None else turns + 1
        node = self._node(loop, walk, trips, entry, header, exit_state)
        return LoopSummary(self._state_after(loop, leaving, exit_state, entry, turns), [node], chosen.target,
                           reads=_reads_at_entry(walk, turns))

    def _first_exit(self, loop: Loop, walk: Iteration) -> tuple[LoopExit, list[tuple[Formula, bool]]]:
        """The exit by which the loop is left at the captured values, and all others that could be taken.

        Each of the others comes with whether it is tested earlier in an iteration than the first one.
        Raises InlineLoop for an inner loop that may never take its back edge.
        """
        exits = [e for e in walk.exits if e.condition is not False]
        if not exits:
            raise Rejected(Reason.TRIP_COUNT, f"the loop at {loop.header:#x} has no exit")
        if len(exits) == 1:
            return exits[0], []
        counter = self.walker.counter(loop)
        turns = [self.branches.back_edges_at_sample(e.condition, counter) for e in exits]
        number = turns.index(min(turns))
        near = turns[number] < math.inf and self.branches.approaches(exits[number].condition, counter)
        if not near and loop.depth > self.depth:
            raise InlineLoop(loop.header)  # perhaps its back edge is never taken
        if turns[number] == math.inf:
            raise Rejected(Reason.TRIP_COUNT,
                           f"none of the {len(exits)} exits of the loop at {loop.header:#x} is reached by counting")
        return exits[number], [(e.condition, n < number) for n, e in enumerate(exits) if n != number]

    def _require_after_exit_test(self, point: LoopExit, walk: Iteration, given: Linear) -> None:
        """Weaken the obligations noted after the exit test ``point``: they hold only where the loop goes on.

        ``given`` is >= 0 in exactly these iterations.
        """
        obligations = self.algebra.obligations
        for number in range(point.obligations, walk.obligations):
            obligations[number] = replace(obligations[number], given=(*obligations[number].given, given))

    def _require_not_taken(self, leaving: Formula, given: tuple[Linear, ...]) -> None:
        """Require that another exit, taken when ``leaving`` holds, is never taken where ``given`` are >= 0."""
        with self.algebra.under(given):
            self.branches.never(leaving)

    @staticmethod
    def _ends_with_exit(walk: Iteration, point: LoopExit, opaque: frozenset[str]) -> bool:
        """Whether this is a do-while loop: nothing that matters comes after the exit test."""
        acts = any(isinstance(i, StoreEvent | LoopNode | Guarded) for i in walk.items[point.items:])
        return not acts and walk.raising.keys() <= set(point.raising) and walk.state is not None and all(
            point.state[p] == walk.state[p] for p in opaque)

    def _peel_last_iteration(self, loop: Loop, walk: Iteration, entry: State, steps: dict[str, Step],
                            opaque: frozenset[str], turns: Linear) -> LoopSummary:
        """The summary of a while loop: a LoopNode of ``turns`` whole iterations, then a copy of the last, partial one.

        Example: ``while (x = a[i], i < n) b[i++] = x;`` is a loop of n iterations, and behind it one load of ``a[n]``.
        """
        assert walk.state is not None
        items: list[Item] = []
        if turns != Linear.of(0):
            finals = {**walk.state, **{p: v for p, v in entry.items() if p not in opaque}}
            items.append(self._node(loop, walk, turns, entry, self.induction.header(loop, entry, {}, opaque), finals))
        distances = {p: times(turns, step) for p, step in steps.items()}
        last = self._last_iteration(loop, entry, distances, opaque if items else frozenset())
        if last.roots:
            raise invalid_root(loop.header)
        reads = (*_reads_at_entry(last, None), *_reads_at_entry(walk, turns))
        return LoopSummary(last.exits[0].state, items + last.items, last.exits[0].target, last.raising, reads)

    @staticmethod
    def _total_advance(step: Step, numerator: Linear, divisor: int) -> Linear:
        """How far a location with this step has advanced after all R = ``numerator / divisor`` iterations."""
        if numerator == Linear.symbol(TRIPS, divisor):
            return times(Linear.symbol(TRIPS), step)
        if isinstance(step, Linear):
            if divisor != 1:
                raise Rejected(Reason.TRIP_COUNT, f"a location advances by {step}, and the counter by {divisor}")
            return times(numerator, step)
        if step % divisor:
            raise Rejected(Reason.TRIP_COUNT, f"a step of {step} is not a multiple of the counter's step {divisor}")
        return numerator * (step // divisor)

    def _last_iteration(self, loop: Loop, entry: State, distances: dict[str, Linear],
                        opaque: frozenset[str]) -> Iteration:
        """The last, partial iteration of a while loop, from the header to the exit.

        Induction variables start it advanced by ``distances`` from ``entry``. ``opaque`` locations start as ``Final``.
        """
        state = dict(entry)
        for location, distance in distances.items():
            before = entry[location]
            assert isinstance(before, Integer)
            state[location] = self.induction.advanced(before, distance)
        state |= {p: Final(self.walker.name(loop), p, bits_of(p)) for p in opaque}
        with self.algebra.under((), 1, "~m"):
            last = self.walker.execute(loop, state)
        if not last.ended or len(last.exits) != 1 or last.exits[0].condition is not True:
            raise Rejected(Reason.TRIP_COUNT,
                           f"the loop at {loop.header:#x} does not leave in the iteration that its trip count says")
        return last

    def _node(self, loop: Loop, walk: Iteration, trips: Linear | None, entry: State, header: State,
              exit_state: State) -> LoopNode:
        after = walk.state or {}
        carried = tuple(CarriedValue(p, entry[p], after[p]) for p, v in sorted(header.items())
                        if isinstance(v, Carried) and v.loop == self.walker.name(loop) and p in entry and p in after)
        kept = {c.location for c in carried}  # these are in ``finals`` even if their last value is the entry's
        finals = tuple((p, v) for p, v in sorted(exit_state.items()) if v != entry.get(p) or p in kept)
        return LoopNode(self.walker.counter(loop), trips, tuple(walk.items), carried, finals, loop.header,
                        tuple(walk.roots), tuple(walk.raising))

    def _state_after(self, loop: Loop, leaving: Formula, exit_state: State, entry: State,
                     turns: Linear | None) -> State:
        """The state behind the loop: ``exit_state`` with the counter at ``turns``, else ``Final`` values."""
        counter = self.walker.counter(loop)
        way = None if turns is not None else self._final_distance(leaving, counter)
        after: State = {}
        for location, value in exit_state.items():
            if value is entry.get(location):
                after[location] = value
                continue
            varies = not isinstance(value, Integer) or counter in self.algebra.widenings.numbers(value.linear).symbols
            if value == entry.get(location) or not varies:
                after[location] = value
            elif isinstance(value, Integer) and turns is not None:
                last = self.algebra.widenings.substituted(value.linear, {counter: turns})
                after[location] = Integer(last, value.width)
            elif isinstance(value, Integer) and way and _follows(value.linear, counter, way[1]):
                times = value.linear.coefficient(counter) // way[1]
                after[location] = Integer(value.linear.without(counter) + way[0] * times, value.width)
            else:
                after[location] = Final(self.walker.name(loop), location, value.width)
        return after

    def _final_distance(self, leaving: Formula, counter: str) -> tuple[Linear, int] | None:
        """``(total, step)`` such that the loop ends when ``step * counter == total``; None unless it ends on equality.

        This is known even where the trip count is not. ``for (p = a; p != end; p += 24)`` leaves ``p == end``, although
        ``(end - a) / 24`` is not affine.
        """
        if not is_equality(leaving):
            return None
        try:
            first, slope = self.branches.crossing(leaving, counter)
        except Rejected:
            return None
        return -first, slope


def _reads_at_entry(walk: Iteration, turns: Linear | None) -> tuple[Read, ...]:
    """The reads of the first iteration of an inner loop as reads of the loop around it (``turns``: its back edges)."""
    found = (read.within(walk.counter, turns) for read in walk.reads)
    return tuple(r for r in found if r is not None)


def _follows(linear: Linear, counter: str, step: int) -> bool:
    """Whether ``linear`` advances with ``counter`` by a constant that ``step`` divides."""
    inside = any(counter in made.inside for made in (*linear.quotients, *linear.products))
    return not linear.factor(counter) % step and not inside


def _condition(algebra: Algebra, operands: tuple[Value | None, ...]) -> Value:
    """The comparison that a condition on flags stands for (memopt.x86.conditions).

    ``Opaque`` if it is not known which operation set the flags.
    """
    number = CARRY if operands[0] is None else constant_of(operands[0])
    values = [o for o in operands[1:] if o is not None]
    operation = constant_of(values[0])
    kept = operands[0] is None and operation is not None and flag_family(operation)[0] in ("umul", "smul")
    if number is None or operation is None or kept:  # inc keeps the carry flag of a product, which nobody reads
        return Truth(Opaque(Node("condition", tuple(values), 1)))
    found = expand_condition(number, operation, values[1], values[2], values[3],
                             algebra.compute, constant, algebra.address)
    return algebra.compute(found.operator, (found.left, found.right), 1)
