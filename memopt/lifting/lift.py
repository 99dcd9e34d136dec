"""From a loop in machine code and a captured state to a region: the SCoP with all that makes it true.

The stages: symbolic execution (execute), register tricks undone (recovery), unrolling undone (reroll), the region put
together (building). Facts that specialise it on captured values are found on the way: an attempt that needs one starts
again with it (restarts). What is then left unproved becomes a guard when it holds for the captured state, or the region
is rejected.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from memopt.cfg.dead_registers import dead_registers
from memopt.cfg.unroll import unrolled
from memopt.ir.graph import FlowGraph, Loop, LoopForest
from memopt.ir.linear import Linear
from memopt.ir.operations import Block
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Lane, Region, Sample
from memopt.ir.scop import TRIPS
from memopt.lifting.demotion.aliasing import Aliasing
from memopt.lifting.demotion.demanded import Flow
from memopt.lifting.demotion.recover import recover
from memopt.lifting.demotion.scalar_expansion import PRIVATE, private_sample
from memopt.lifting.demotion.statements import StatementLoop, statements_of
from memopt.lifting.execution.assumptions import GENERAL, LANES, Assumptions
from memopt.lifting.execution.entry_invariants import EntryInvariants
from memopt.lifting.execution.executor import Executor, OuterLoop
from memopt.lifting.execution.memory import stack_stores
from memopt.lifting.execution.parameters import PARAMETER, is_parameter, live_in
from memopt.lifting.reroll.operand_order import in_one_order
from memopt.lifting.reroll.overlapping_copies import whole_rows
from memopt.lifting.reroll.quotients import trimmed, without_quotients
from memopt.lifting.reroll.reroll import reroll
from memopt.lifting.reroll.splat_constants import unify_splats
from memopt.lifting.scop.element_types import split
from memopt.lifting.scop.obligations import limits
from memopt.lifting.scop.region_builder import RegionBuilder
from memopt.lifting.values.algebra import LOOP_COUNTER
from memopt.lifting.values.loop_tree import bounds
from memopt.lifting.values.requests import (
    AssumeAll,
    AssumeEqual,
    AssumeInvariantLane,
    AssumeRowTable,
    DeferExtension,
    ExpressByTrips,
    InlineLoop,
    KeepLiveOut,
    KeepOperandOrder,
    MaskOperands,
    NotAParameter,
    PromoteCell,
    SplitPaths,
    TreatAsData,
)
from memopt.lifting.values.values import Carried, Final, Node, Value, constant_of

ATTEMPTS = 192
FRAME = 1 << 16  # bytes from rsp to where rbp is not taken for a pointer to the frame any more
MOST_TRIPS = 1 << 16  # a guard that lets more pass says nothing about sizes


@dataclass(frozen=True, slots=True)
class Code:
    """The loop's surroundings: ``lift`` gives the operations of the basic block at an address. ``calls``: copies of
    what the loop calls are among them. ``to_the_end``: what the last iteration does is asked for, if possible."""

    graph: FlowGraph
    forest: LoopForest
    lift: Callable[[int], Block]
    calls: bool = False
    to_the_end: bool = False


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
        most = [f.evaluate(known) // -c for f in self.region.nonnegative
                if f.symbols <= known.keys() and (c := f.coefficient(TRIPS)) < 0]
        return max([left, *(m for m in [min(most, default=0)] if m <= MOST_TRIPS)])


def lift_region(code: Code, loop: Loop, registers: Mapping[str, int], peek: Callable[[int, int], int],
                displaced: bytes, vectors: Mapping[str, bytes] | None = None,
                patient: Callable[[], bool] = lambda: True, earlier: Sequence[Sample] = ()) -> Lifted:
    """Lift ``loop`` as captured at its header.

    ``registers``: the 64-bit general registers as unsigned numbers; ``vectors``: what is known of the 32 bytes of each
    vector register ("xmm3"). ``peek(address, bits)`` reads memory of the captured state as a signed number.
    ``earlier``: what ``Lifted.entry`` was at entries whose values the new code was not made for. Raises Rejected with
    the reason when the loop is outside what is modelled, or takes longer than ``patient()`` says.
    """
    signed = {r: (registers[r] + (1 << 63)) % (1 << 64) - (1 << 63) for r in GENERAL}
    turns: dict[int, int] = {}
    facts = functools.partial(Assumptions, signed, peek, vectors or {}, earlier=earlier, calls=code.calls, turns=turns)

    def go_on() -> None:
        if not patient():
            raise Rejected(Reason.NO_PLAN, "understanding the loop takes too long")

    try:
        return _at_entry(code, loop, facts, displaced, go_on)
    except Rejected:
        times = turns.get(loop.header, 1)
        rounds = unrolled(code.graph, code.lift, loop, times) if times > 1 else None
        if rounds is None:
            raise
        graph, forest, lift, longer = rounds
        lifted = _at_entry(replace(code, graph=graph, forest=forest, lift=lift), longer, facts, displaced, go_on)
        return replace(lifted, region=replace(lifted.region, period=times))


def _at_entry(code: Code, loop: Loop, facts: functools.partial[Assumptions], displaced: bytes,
              go_on: Callable[[], None]) -> Lifted:
    """``facts`` of an entry; other ways to look at it are tried where the plain one is no good."""
    if code.to_the_end:
        with suppress(Rejected):
            return _at_entry(replace(code, to_the_end=False), loop, functools.partial(facts, to_the_end=True),
                             displaced, go_on)
    first = facts()
    frame = first.registers["rbp"] - first.registers["rsp"]
    framed = 0 < frame <= FRAME and any(stack_stores(code.lift(b), "rbp") for b in loop.blocks)
    try:
        return _with_facts(code, loop, first, displaced, go_on)
    except Rejected as plain:
        for other in (*([facts(framed=True)] if framed else []), *([facts(eager=True)] if first.declined else [])):
            with suppress(Rejected):
                return _with_facts(code, loop, other, displaced, go_on)
        raise plain from None


def _with_facts(code: Code, loop: Loop, facts: Assumptions, displaced: bytes, go_on: Callable[[], None]) -> Lifted:
    for _ in range(ATTEMPTS):
        go_on()
        try:
            return _attempt(code, loop, facts, displaced, go_on)
        except AssumeEqual as need:
            facts = _specialised(facts, (need,))
        except AssumeAll as several:
            facts = _specialised(facts, several.needs)
        except (ExpressByTrips, PromoteCell, SplitPaths, MaskOperands, DeferExtension, InlineLoop, AssumeInvariantLane,
                AssumeRowTable, KeepLiveOut) as need:
            _note(facts, need)
        except (NotAParameter, TreatAsData) as need:
            facts = facts.moved(need.symbol) if isinstance(need, NotAParameter) else facts.stored(need.address)
        except RecursionError:
            raise Rejected(Reason.NON_AFFINE, "its values are nested too deeply") from None
    raise Rejected(Reason.NON_AFFINE, "too many values would have to be specialised")


def _note(facts: Assumptions, need: Exception) -> None:
    match need:
        case PromoteCell():
            facts.add_cell(need.address, need.width)
        case SplitPaths():
            facts.split[need.address] = max(facts.split.get(need.address, 0) + 1, need.least)
        case MaskOperands():
            facts.masked.add(need.address)
        case DeferExtension():
            facts.deferred |= need.addresses
        case InlineLoop():
            facts.inlined.add(need.header)
        case AssumeInvariantLane():
            facts.lanes |= need.lanes
        case AssumeRowTable():
            facts.add_table(need.address, need.place)
        case KeepLiveOut():
            facts.kept |= need.locations
        case ExpressByTrips():
            facts.by_trips = True


def _specialised(facts: Assumptions, needs: Sequence[AssumeEqual]) -> Assumptions:
    """``facts`` with equations for ``needs``; or others, to start anew with, where one of them shows that each size
    needs a version of its own."""
    for need in needs:
        linear = need.linear.substitute(facts.solved)
        if linear.is_constant:  # another equation says so
            continue
        if need.factor and facts.differs(linear):  # a stride
            return facts.specialised()
        facts.add_equation(linear, need.unknowns, need.symbolic)
    return facts


def _attempt(code: Code, loop: Loop, facts: Assumptions, displaced: bytes, go_on: Callable[[], None]) -> Lifted:
    outer = Executor(code.graph, code.forest, code.lift, facts, go_on).outermost(loop)
    try:
        return _described(code, loop, facts, outer, displaced, go_on)
    except KeepOperandOrder:
        facts.ordered = True
        return _described(code, loop, facts, outer, displaced, go_on)


def _described(code: Code, loop: Loop, facts: Assumptions, outer: OuterLoop, displaced: bytes,
               go_on: Callable[[], None]) -> Lifted:
    """``outer`` as a region, under the same ``facts``."""
    remaining = EntryInvariants(facts, outer.steps, outer.numerator, outer.divisor)
    outer = _related(outer, remaining)
    builder = RegionBuilder(facts, outer, remaining)
    aliasing = Aliasing(outer.ranges, builder.sample, limits(builder.proofs), go_on=go_on)
    steady = _steady_lanes(outer, facts)
    try:
        used = frozenset(facts.kept)
        recovered = builder.answered(lambda: recover(outer.node, aliasing, builder.demands, builder.always, used))
    except Rejected as refused:
        if refused.reason is Reason.CARRIED_VALUE and steady:
            raise AssumeInvariantLane(steady) from None
        raise
    places = [m.location for m in recovered.memory_backed] + [a.location for a in recovered.private_backed]
    carried = {f"{p.register}.{p.offset // 8}" for p in places if isinstance(p, Lane)}
    if carried & steady.keys():
        raise AssumeInvariantLane({lane: number for lane, number in steady.items() if lane in carried})
    statements, builder.restored = recovered.loop, recovered.restored
    builder.memory_backed, builder.private_backed = recovered.memory_backed, recovered.private_backed
    registers = {c.location for c in outer.node.carried} & {*GENERAL, *LANES}
    dead = dead_registers(code.graph, code.lift, loop.header, registers)
    builder.restored, builder.dead = builder.restored | dead, dead.intersection(GENERAL)
    builder.sample |= private_sample(s for c in statements_of(statements) for a in c.accesses for s in a.symbols
                                     if s.startswith(PRIVATE))
    statements, rows = whole_rows(split(statements, builder.sample, outer.ranges), aliasing)
    aliasing = replace(aliasing, ranges={**aliasing.ranges, **rows})
    statements = unify_splats(statements, aliasing, builder)
    ordered = None if facts.ordered else in_one_order(statements, builder.sample)
    statements, builder.reordered = ordered or statements, ordered is not None
    statements = builder.answered(lambda: reroll(statements, aliasing, builder))
    statements = trimmed(statements, aliasing.limits, builder.sample)
    statements = without_quotients(statements, aliasing.limits)
    region = builder.region(loop.header, displaced, statements, tuple(aliasing.assumed))
    return Lifted(region, outer, statements, facts.samples())


def _steady_lanes(outer: OuterLoop, facts: Assumptions) -> dict[str, int]:
    """Vector lanes that hold the number already that an iteration sets them to, where it does: cleared for the next
    one, or as the upper part of what an AVX instruction writes. That they keep it is for the next attempt to prove."""
    found: dict[str, int] = {}
    flow = Flow.of(outer.node)
    for carried in outer.node.carried:
        name, _, lane = carried.location.partition(".")
        if carried.location not in LANES or carried.location in facts.lanes:
            continue
        held = facts.vectors.get(name, b"")[8 * int(lane):][:8]
        numbers = {constant_of(v) for v in _set_to(carried.following, flow) if v != carried.entry}
        number = numbers.pop() if len(numbers) == 1 else None
        if number is not None and held == (number % (1 << 64)).to_bytes(8, "little"):
            found[carried.location] = number % (1 << 64)
    return found


def _set_to(value: Value, flow: Flow) -> Iterator[Value]:
    """What ``value`` is, whichever way branches and loops went."""
    pending, seen = [value], set[Value]()
    while pending:
        each = pending.pop()
        if each in seen:
            continue
        seen.add(each)
        match each:
            case Node("select", (_, first, second), _):
                pending += (first, second)
            case Carried() | Final() if sources := flow.sources(each):
                pending += sources
            case _:
                yield each


def _related(outer: OuterLoop, remaining: EntryInvariants) -> OuterLoop:
    """``outer`` with inner bounds over counters and R alone; asks for the equations that make them so."""
    def live(bound: Linear) -> Linear:
        return Linear(tuple(t for t in bound.terms if t[0] != TRIPS and not t[0].startswith((LOOP_COUNTER, PARAMETER))))

    inner = bounds(outer.node)
    if remaining.facts.by_trips or any(remaining.moves(live(b)) for b in inner.union(*map(_numerators, inner))):
        outer = outer.rewritten(remaining.by_trips())
    inner = bounds(outer.node)
    needs: dict[Linear, AssumeEqual] = {}
    for bound in sorted(map(live, inner.union(*(_numerators(b) for b in inner))), key=str):
        if not bound.is_constant:
            invariant = remaining.invariant(bound)
            if invariant.is_constant:
                raise Rejected(Reason.TRIP_COUNT, f"the bound {bound} does not follow from the iterations that remain")
            needs[invariant] = AssumeEqual(invariant, remaining.moves(bound), symbolic=True)
    if needs:
        raise AssumeAll(tuple(needs.values()))
    return outer


def _numerators(linear: Linear) -> frozenset[Linear]:
    """What is divided and rounded in ``linear``."""
    inside = frozenset(q.numerator for q in linear.quotients)
    return inside.union(*map(_numerators, inside))
