"""Lift a loop nest by symbolic execution of one iteration per loop, inner loops summarised first.

``facts`` names locations, ``places`` reads and writes them, ``walk`` runs one iteration, ``induction`` finds what
advances by a constant, ``exits`` solves for the trip count. Branches inside an iteration follow the captured values;
what they rely on becomes an obligation for all iterations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from memopt.ir.graph import FlowGraph, Loop, LoopForest
from memopt.ir.linear import Linear
from memopt.ir.operations import Block
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.scop import ElementType
from memopt.lifting.execution.assumptions import GENERAL, LANES, Assumptions, State, bits_of
from memopt.lifting.execution.branches import Branches, is_equality, width_of
from memopt.lifting.execution.entry_invariants import EntryInvariants
from memopt.lifting.execution.induction import Induction
from memopt.lifting.execution.invariant_compares import Fixed
from memopt.lifting.execution.iteration import Iteration, IterationExecutor, LoopExit, LoopSummary
from memopt.lifting.execution.memory import MemoryModel
from memopt.lifting.execution.row_tables import RowTable
from memopt.lifting.execution.sqrt_exits import check_roots, invalid_root
from memopt.lifting.values.algebra import Algebra, Obligation
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
from memopt.lifting.values.requests import AssumeEqual, InlineLoop
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
    """The patched loop, lifted: header values are ``entry`` at the current iteration and ``steps`` per iteration.

    ``zeros``: when not empty, some iterations leave it where a square root is invalid
    (memopt.lifting.execution.iteration), as long
    as these lanes ("xmm2.0", bits; "" for none) are zero. Those in ``fixed`` hold numbers by which branches went.
    ``unordered``: for a NaN as well. ``wider``: as in memopt.ir.region.Region. ``tables``: words that were taken for
    linear, with what of the pointers to them is no multiple of a word. Locations in ``narrow`` have their numbers in
    the low 32 bits, the others are zero.

    ``reads``: cells at fixed addresses that the original reads in some iteration (memopt.lifting.scop.dereferenceable).

    ``numerator / divisor`` is R, how often the header is reached from now on (memopt.ir.region.Trips).
    ``exit_state`` holds every location when the loop is left; ``leaves_first``: something of an iteration
    comes after the exit test (a while loop), so that R counts only whole iterations; ``last``: what the last one does
    in front of that test, None where it was not asked for (memopt.lifting.execution.assumptions).
    """

    node: LoopNode
    steps: dict[str, int]
    opaque: frozenset[str]
    numerator: Linear
    divisor: int
    exit_state: State
    obligations: tuple[Obligation, ...]
    exit_width: int  # bits of the exit comparison
    ranges: dict[str, Linear]  # counter -> its largest value
    slots: frozenset[str]
    leaves_first: bool
    narrow: frozenset[str] = frozenset()
    zeros: dict[str, int] = field(default_factory=dict)
    fixed: Fixed = field(default_factory=dict)
    speculative_accesses: bool = False
    tables: dict[RowTable, tuple[Linear, ...]] = field(default_factory=dict)
    unordered: bool = False
    reads: tuple[Read, ...] = ()
    last: tuple[Item, ...] | None = None

    def rewritten(self, values: dict[str, Linear]) -> OuterLoop:
        """With live-in symbols replaced by expressions in items, ranges and obligations."""
        new = Substitution(values)
        node = rewritten(self.node, new)
        assert isinstance(node, LoopNode)
        obligations = tuple(replace(o, linear=new.linear(o.linear), given=tuple(map(new.linear, o.given)))
                            for o in self.obligations)
        exit_state = {p: new.value(v) for p, v in self.exit_state.items()}
        reads = tuple(replace(r, pointer=new.linear(r.pointer), conditions=tuple(map(new.linear, r.conditions)))
                      for r in self.reads)
        last = None if self.last is None else tuple(rewritten(item, new) for item in self.last)
        return replace(self, node=node, obligations=obligations, exit_state=exit_state, reads=reads, last=last,
                       ranges={c: new.linear(n) for c, n in self.ranges.items()})


class Executor:
    """One attempt at lifting, under fixed ``facts``. Raises Specialise or Promote to ask for another attempt."""

    def __init__(self, graph: FlowGraph, forest: LoopForest, lift: Callable[[int], Block], facts: Assumptions,
                 go_on: Callable[[], None] = lambda: None) -> None:
        loads: list[LoadEvent] = []
        self.facts, self.depth = facts, 0
        self.algebra = Algebra(facts.samples(), lambda event: loads[event].pointer, _condition)
        self.algebra.widenings.addresses = frozenset(facts.deferred)
        self.algebra.written = facts.written
        self.algebra.low_bytes = facts.low_bytes()
        self.exits = Branches(self.algebra)
        self.algebra.decide = self.exits.decide
        self.places = MemoryModel(facts, self.algebra, loads)
        self.walker = IterationExecutor(graph, forest, lift, self.algebra, self.places, self.exits, self._inner, go_on)
        self.induction = Induction(facts, self.algebra, self.places, self.walker)

    def outermost(self, loop: Loop) -> OuterLoop:
        entry: State = {r: Integer(self.facts.symbol(r), 64) for r in GENERAL}
        entry |= {lane: LiveVector(lane) for lane in LANES} | {"d_flag": constant(1, 64)}
        entry |= {flag: Carried("entry", flag) for flag in ("cc_op", "cc_dep1", "cc_dep2", "cc_ndep", "mxcsr_round")}
        for lane, number in self.facts.lanes.items():
            entry[lane] = constant(number, 64)
            self.walker.fixed[lane, ElementType.F64] = number.to_bytes(8, "little")
        self.depth = loop.depth
        steps, opaque, walk, header = self.induction.of(loop, entry)
        counter = self.walker.counter(loop)
        chosen, others = self._first_exit(loop, walk)
        if walk.ended or walk.state is None:
            raise Rejected(Reason.TRIP_COUNT, f"the loop at {loop.header:#x} ends in its first iteration")
        leaving, exit_state = chosen.condition, chosen.state
        first, slope = self.exits.crossing(leaving, counter)
        leaves_first = not self._ends_with_exit(walk, chosen, opaque)
        numerator = -first if slope > 0 else first
        if not leaves_first:
            numerator = numerator + abs(slope)
        if not is_equality(leaving):  # the last step may overshoot the bound; by how much is guarded with the division
            numerator = numerator + -self.algebra.at_sample(numerator) % abs(slope)
        for distance in self.algebra.distances:
            self._relate(EntryInvariants(self.facts, steps, numerator, abs(slope)), distance)
        self.algebra.sample["R"] = self.algebra.at_sample(numerator) // abs(slope)
        self.algebra.ranges[counter] = Linear.symbol("R") - 1
        last = Linear.symbol("R") - (1 if leaves_first else 2)
        self._goes_on(chosen, walk, last - Linear.symbol(counter))
        for formula, earlier in others:
            self._not_taken(formula, () if earlier else (last - Linear.symbol(counter),))
            if earlier and leaves_first:
                self._not_taken(Substitution({counter: Linear.symbol("R")}).formula(formula), ())
        node = self._node(loop, walk, Linear.symbol("R"), entry, header, exit_state)
        check_roots(node)
        end = None
        if leaves_first and self.facts.to_the_end:
            distances = {p: self._advanced_to_the_end(step, numerator, abs(slope)) for p, step in steps.items()}
            end = tuple(self._to_the_exit(loop, entry, distances, opaque).items)
        return OuterLoop(node, steps, opaque, numerator, abs(slope), exit_state,
                         tuple(self.algebra.obligations), width_of(leaving), dict(self.algebra.ranges),
                         frozenset(self.places.slots), leaves_first, self._narrow(entry, steps),
                         dict(self.walker.zeros), dict(self.walker.fixed), bool(self.walker.choices),
                         {t: tuple(pointers) for t, pointers in self.places.tables.items()},
                         bool(self.walker.unordered), tuple(r for r in walk.reads if not (r.late and walk.roots)), end)

    def _narrow(self, entry: State, steps: dict[str, int]) -> frozenset[str]:
        values = {p: entry[p] for p in steps}
        found = {p: self.algebra.widenings.whole(v.linear) for p, v in values.items() if isinstance(v, Integer)}
        if any(w is not None and w.bits != 32 for w in found.values()):
            raise Rejected(Reason.UNSUPPORTED_INSTRUCTION, "a counter of 8 or 16 bits that wraps around")
        return frozenset(p for p, w in found.items() if w is not None)

    @staticmethod
    def _relate(remaining: EntryInvariants, distance: Linear) -> None:
        """Ask for what the divisibility of a bound's ``distance`` depends on."""
        invariant = remaining.invariant(distance)
        if invariant.is_constant:
            raise Rejected(Reason.TRIP_COUNT, f"the bound {distance} is not reached in even steps")
        raise AssumeEqual(invariant, frozenset(s for s, c in distance.terms if c > 0))

    def _inner(self, loop: Loop, entry: State) -> LoopSummary:
        """Summarise a loop met inside an iteration."""
        steps, opaque, walk, header = self.induction.of(loop, entry)
        counter = self.walker.counter(loop)
        if walk.state is None and len({target for _, target in loop.exits}) > 1:
            raise InlineLoop(loop.header)
        chosen, others = self._first_exit(loop, walk)
        leaving, exit_state = chosen.condition, chosen.state
        turns = self.exits.back_edges(leaving, counter)
        if turns is not None:
            self.algebra.ranges[counter] = turns
            self._goes_on(chosen, walk, turns - Linear.symbol(counter) - 1)
            for formula, earlier in others:
                self._not_taken(formula, () if earlier else (turns - Linear.symbol(counter) - 1,))
        if turns is not None and walk.state is not None and not self._ends_with_exit(walk, chosen, opaque):
            return self._left_in_the_middle(loop, walk, entry, steps, opaque, turns)
        trips = None if turns is None else turns + 1
        node = self._node(loop, walk, trips, entry, header, exit_state)
        return LoopSummary(self._after(loop, leaving, exit_state, entry, turns), [node], chosen.target,
                           reads=_outside(walk, turns))

    def _first_exit(self, loop: Loop, walk: Iteration) -> tuple[LoopExit, list[tuple[Formula, bool]]]:
        """The exit by which the loop is left, and the others, each with whether it is tested earlier."""
        exits = [e for e in walk.exits if e.condition is not False]
        if not exits:
            raise Rejected(Reason.TRIP_COUNT, f"no exit of the loop at {loop.header:#x}")
        if len(exits) == 1:
            return exits[0], []
        counter = self.walker.counter(loop)
        turns = [self.exits.back_edges_at_sample(e.condition, counter) for e in exits]
        number = turns.index(min(turns))
        near = turns[number] < math.inf and self.exits.nears(exits[number].condition, counter)
        if not near and loop.depth > self.depth:
            raise InlineLoop(loop.header)  # perhaps it never goes round
        if turns[number] == math.inf:
            raise Rejected(Reason.TRIP_COUNT, f"{len(exits)} exits of the loop at {loop.header:#x}")
        return exits[number], [(e.condition, n < number) for n, e in enumerate(exits) if n != number]

    def _goes_on(self, point: LoopExit, walk: Iteration, given: Linear) -> None:
        """What is required after the test at ``point`` is required only where the loop goes on."""
        obligations = self.algebra.obligations
        for number in range(point.obligations, walk.obligations):
            obligations[number] = replace(obligations[number], given=(*obligations[number].given, given))

    def _not_taken(self, leaving: Formula, given: tuple[Linear, ...]) -> None:
        with self.algebra.under(given):
            self.exits.never(leaving)

    @staticmethod
    def _ends_with_exit(walk: Iteration, point: LoopExit, opaque: frozenset[str]) -> bool:
        """A do-while loop: nothing that matters comes after the exit test."""
        acts = any(isinstance(i, StoreEvent | LoopNode | Guarded) for i in walk.items[point.items:])
        return not acts and walk.raising.keys() <= set(point.raising) and walk.state is not None and all(
            point.state[p] == walk.state[p] for p in opaque)

    def _left_in_the_middle(self, loop: Loop, walk: Iteration, entry: State, steps: dict[str, int],
                            opaque: frozenset[str], turns: Linear) -> LoopSummary:
        """``turns`` whole iterations, then the part of one up to the exit, walked once more from where they end."""
        assert walk.state is not None
        items: list[Item] = []
        if turns != Linear.of(0):
            finals = {**walk.state, **{p: v for p, v in entry.items() if p not in opaque}}
            items.append(self._node(loop, walk, turns, entry, self.induction.header(loop, entry, {}, opaque), finals))
        distances = {p: turns * step for p, step in steps.items()}
        last = self._to_the_exit(loop, entry, distances, opaque if items else frozenset())
        if last.roots:
            raise invalid_root(loop.header)
        reads = (*_outside(last, None), *_outside(walk, turns))
        return LoopSummary(last.exits[0].state, items + last.items, last.exits[0].target, last.raising, reads)

    @staticmethod
    def _advanced_to_the_end(step: int, numerator: Linear, divisor: int) -> Linear:
        """By how much a location with this step is, after all R = ``numerator / divisor`` iterations."""
        if step % divisor:
            raise Rejected(Reason.TRIP_COUNT, "what advances does so in other steps than what is counted")
        return numerator * (step // divisor)

    def _to_the_exit(self, loop: Loop, entry: State, distances: dict[str, Linear], opaque: frozenset[str]) -> Iteration:
        """The last iteration: locations are ``distances`` from where they were at ``entry``, or hold what follows from
        all that was done, if they are ``opaque``."""
        state = dict(entry)
        for location, distance in distances.items():
            before = entry[location]
            assert isinstance(before, Integer)
            state[location] = self.induction.advanced(before, distance)
        state |= {p: Final(self.walker.name(loop), p, bits_of(p)) for p in opaque}
        with self.algebra.under((), 1, "~m"):
            last = self.walker.execute(loop, state)
        if not last.ended or len(last.exits) != 1 or last.exits[0].condition is not True:
            raise Rejected(Reason.TRIP_COUNT, f"the last iteration of the loop at {loop.header:#x} is not its last")
        return last

    def _node(self, loop: Loop, walk: Iteration, trips: Linear | None, entry: State, header: State,
              exit_state: State) -> LoopNode:
        after = walk.state or {}
        carried = tuple(CarriedValue(p, entry[p], after[p]) for p, v in sorted(header.items())
                        if isinstance(v, Carried) and v.loop == self.walker.name(loop) and p in entry and p in after)
        kept = {c.location for c in carried}  # its last value has a name, whatever it is
        finals = tuple((p, v) for p, v in sorted(exit_state.items()) if v != entry.get(p) or p in kept)
        return LoopNode(self.walker.counter(loop), trips, tuple(walk.items), carried, finals, loop.header,
                        tuple(walk.roots), tuple(walk.raising))

    def _after(self, loop: Loop, leaving: Formula, exit_state: State, entry: State, turns: Linear | None) -> State:
        counter = self.walker.counter(loop)
        way = None if turns is not None else self._way(leaving, counter)
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

    def _way(self, leaving: Formula, counter: str) -> tuple[Linear, int] | None:
        """``(total, step)``: the loop ends when step * counter is total, even where the turns themselves are unknown.

        So a register that runs up to a bound is known to be the bound.
        """
        if not is_equality(leaving):
            return None
        try:
            first, slope = self.exits.crossing(leaving, counter)
        except Rejected:
            return None
        return -first, slope


def _outside(walk: Iteration, turns: Linear | None) -> tuple[Read, ...]:
    """What the first iteration of a loop that goes round ``turns`` times reads, seen from outside."""
    found = (read.within(walk.counter, turns) for read in walk.reads)
    return tuple(r for r in found if r is not None)


def _follows(linear: Linear, counter: str, step: int) -> bool:
    """Whether ``linear`` moves by a multiple of ``step``, always the same, with ``counter``."""
    return not linear.factor(counter) % step and not any(counter in q.numerator.symbols for q in linear.quotients)


def _condition(algebra: Algebra, operands: tuple[Value | None, ...]) -> Value:
    """Flags to a comparison, once it is known which operation set them (memopt.x86.conditions)."""
    number = CARRY if operands[0] is None else constant_of(operands[0])
    values = [o for o in operands[1:] if o is not None]
    operation = constant_of(values[0])
    kept = operands[0] is None and operation is not None and flag_family(operation)[0] in ("umul", "smul")
    if number is None or operation is None or kept:  # inc keeps the carry of a product, which nobody asked for
        return Truth(Opaque(Node("condition", tuple(values), 1)))
    found = expand_condition(number, operation, values[1], values[2], values[3],
                             algebra.compute, constant, algebra.address)
    return algebra.compute(found.operator, (found.left, found.right), 1)
