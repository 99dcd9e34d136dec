"""Lifting: machine code and a captured state become a ``Region``, a SCoP with its guards and live-ins.

Example: ``for (i = 0; i < n; i++) for (j = 0; j < n; j++) s[i] += a[i * n + j];``, stopped at the header of the outer
loop with n = 1000, becomes one statement over 0 <= i < R, 0 <= j < 1000 with the guard ``n == 1000``.

In: the flow graph, its loops, the operations of its blocks, the registers at the header, and ``peek`` for memory. Out:
``Lifted``, a ``Region`` and the forms that led to it, or ``Rejected`` with the reason.

An attempt has these stages: symbolic execution of one iteration (execution), registers become memory cells (demotion),
the passes over statements in ``PASSES`` (mostly rerolling), and the region is assembled (scop). An attempt runs under
assumptions. Where it needs one more, it raises a ``Request``, and the next attempt has it. Where a view of the entry is
refused, ``lift_region`` tries the next one: the plain one, one with rbp as frame pointer, one that specialises eagerly,
and the same of the loop unrolled by the period of its exchanges.

Sound because each assumption is proved, or becomes a guard that is checked at every entry, or the loop is refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from memopt.cfg.dead_registers import dead_registers
from memopt.cfg.unroll import unrolled
from memopt.ir.frozen import dataclass
from memopt.ir.graph import FlowGraph, Loop, LoopForest
from memopt.ir.linear import Linear
from memopt.ir.operations import Block, Put
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Lane, Region, Sample
from memopt.ir.scop import TRIPS
from memopt.lifting.demotion.aliasing import Aliasing
from memopt.lifting.demotion.demanded import Flow
from memopt.lifting.demotion.recover import Recovered, recover
from memopt.lifting.demotion.scalar_expansion import PRIVATE, private_sample
from memopt.lifting.demotion.statements import StatementLoop, statements_of
from memopt.lifting.execution.assumptions import GENERAL, LANES, Assumptions
from memopt.lifting.execution.entry_invariants import EntryInvariants
from memopt.lifting.execution.executor import Executor, OuterLoop
from memopt.lifting.execution.memory import stack_stores
from memopt.lifting.execution.parameters import PARAMETER, is_parameter, live_in
from memopt.lifting.reroll.floor_divisions import trimmed, without_quotients
from memopt.lifting.reroll.operand_order import in_one_order
from memopt.lifting.reroll.overlapping_copies import whole_rows
from memopt.lifting.reroll.reroll import reroll
from memopt.lifting.reroll.splat_constants import unify_splats
from memopt.lifting.scop.element_types import split
from memopt.lifting.scop.evidence import Evidence
from memopt.lifting.scop.obligations import limits
from memopt.lifting.scop.region_builder import region
from memopt.lifting.values.algebra import LOOP_COUNTER
from memopt.lifting.values.budget import Budget
from memopt.lifting.values.loop_tree import bounds
from memopt.lifting.values.requests import AssumeAll, AssumeEqual, AssumeInvariantLane, KeepOperandOrder, Request
from memopt.lifting.values.values import Carried, Final, Node, Value, constant_of

ATTEMPTS = 192  # of one view
FRAME = 1 << 16  # bytes from rsp beyond which rbp is not taken for a frame pointer
MOST_TRIPS = 1 << 16  # a guard that lets more pass says nothing about sizes


@dataclass(frozen=True, slots=True)
class Code:
    """The code around a loop.

    ``lift`` gives the operations of the basic block at an address. ``calls``: the blocks include copies of functions
    that the loop calls. ``to_the_end``: execute the last iteration too, where that is possible (for surveys).
    ``roots``: see memopt.cfg.cold_calls.root_exits."""

    graph: FlowGraph
    forest: LoopForest
    lift: Callable[[int], Block]
    calls: bool = False
    to_the_end: bool = False
    roots: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Lifted:
    """A region with the intermediate forms that led to it (golden tests, ``--print-after``)."""

    region: Region
    outer: OuterLoop
    statements: StatementLoop
    entry: Sample  # captured values of the live-in symbols

    def trips(self, entry: Sample) -> int:
        """R where the loop starts, for a loop that was captured perhaps in its middle at ``entry``: as many iterations
        as the guards let pass at these sizes, if they bound them, else those left at ``entry``; 0 where unknown."""
        count = self.region.trips
        known = {s: entry[live_in(s)] for live in self.region.live_ins if live_in(s := live.symbol) in entry}
        if not count.numerator.symbols <= known.keys():
            return 0
        left = count.numerator.evaluate(known) // count.divisor
        known = {s: v for s, v in known.items() if is_parameter(s)} | {TRIPS: 0}
        most = [f.evaluate(known) // -c for f in self.region.nonnegative
                if f.symbols <= known.keys() and (c := f.coefficient(TRIPS)) < 0]
        return max([left, *(m for m in [min(most, default=0)] if m <= MOST_TRIPS)])


# -- passes over statements -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class StatementContext:
    """The information that passes may use. If a pass makes loops, ``aliasing`` is replaced by one that knows their
    counters.
    """

    evidence: Evidence
    aliasing: Aliasing


@dataclass(frozen=True, slots=True)
class StatementPass:
    """``run`` returns equivalent statements, and tells the context's evidence what the equivalence relies on."""

    name: str
    run: Callable[[StatementLoop, StatementContext], StatementLoop]


def _split_elements(statements: StatementLoop, context: StatementContext) -> StatementLoop:
    return split(statements, context.evidence.sample, context.aliasing.ranges)


def _overlapping_copies(statements: StatementLoop, context: StatementContext) -> StatementLoop:
    statements, rows = whole_rows(statements, context.aliasing)
    context.aliasing = replace(context.aliasing, ranges={**context.aliasing.ranges, **rows})
    return statements


def _splat_constants(statements: StatementLoop, context: StatementContext) -> StatementLoop:
    return unify_splats(statements, context.aliasing, context.evidence)


def _operand_order(statements: StatementLoop, context: StatementContext) -> StatementLoop:
    if context.evidence.assumptions.ordered:
        return statements
    ordered = in_one_order(statements, context.evidence.sample)
    context.evidence.reordered = ordered is not None
    return ordered or statements


def _reroll(statements: StatementLoop, context: StatementContext) -> StatementLoop:
    return context.evidence.answered(lambda: reroll(statements, context.aliasing, context.evidence))


def _trim(statements: StatementLoop, context: StatementContext) -> StatementLoop:
    return trimmed(statements, context.aliasing.limits, context.evidence.sample)


def _floor_divisions(statements: StatementLoop, context: StatementContext) -> StatementLoop:
    return without_quotients(statements, context.aliasing.limits)


PASSES: tuple[StatementPass, ...] = (
    StatementPass("split-elements", _split_elements),
    StatementPass("overlapping-copies", _overlapping_copies),
    StatementPass("splat-constants", _splat_constants),
    StatementPass("operand-order", _operand_order),
    StatementPass("reroll", _reroll),
    StatementPass("trim", _trim),
    StatementPass("floor-divisions", _floor_divisions),
)

Observer = Callable[[str, StatementLoop], None]
"""Called after each of ``PASSES``, in every attempt that gets there, with its name and what it returned."""


# -- the ladder -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _View:
    """One way to look at an entry of the loop: the code, and the assumptions to begin with. ``period``: iterations of
    the program's loop that are one of ``loop`` (memopt.cfg.unroll)."""

    code: Code
    loop: Loop
    assumptions: Assumptions
    period: int

    @property
    def plain(self) -> bool:
        """Whether its refusal is the one to report."""
        return not (self.assumptions.framed or self.assumptions.eager)


def lift_region(code: Code, loop: Loop, registers: Mapping[str, int], peek: Callable[[int, int], int],
                displaced: bytes, vectors: Mapping[str, bytes] | None = None,
                patient: Callable[[], bool] = lambda: True, earlier: Sequence[Sample] = (),
                observer: Observer | None = None, strided: Callable[[Lifted], bool] | None = None) -> Lifted:
    """Lift ``loop`` as captured at its header.

    ``registers``: the 64-bit general registers as unsigned numbers; ``vectors``: the vector registers ("xmm3") whose
    contents are known, 32 bytes each. ``peek(address, bits)`` reads memory of the captured state as a signed number.
    ``displaced``: see ``Region``. ``patient()`` becomes False when lifting has taken too long. ``earlier``:
    ``Lifted.entry`` of entries whose values no version was made for. ``strided``: whether what was lifted is of use,
    with rows of a length that differs between entries (memopt.lifting.scop.symbolic_rows); without it, and where the
    answer is no, such lengths are numbers.

    Raises Rejected with the reason of the last plain view when the loop is outside what is modelled, or
    Rejected(NO_PLAN) when it takes too long.
    """
    signed = {r: (registers[r] + (1 << 63)) % (1 << 64) - (1 << 63) for r in GENERAL} | {"rip": loop.header}
    puts = (o for b in loop.blocks for o in code.lift(b).operations if isinstance(o, Put))
    start = functools.partial(Assumptions, signed, peek, vectors or {}, earlier=earlier, calls=code.calls,
                              overwritten=frozenset(p.location for p in puts))
    budget = Budget(patient)
    refusal: Rejected | None = None
    for view in _views(code, loop, start, strided is not None):
        try:
            found = _lifted(view, displaced, budget, observer)
        except Rejected as refused:
            refusal = refused if view.plain else refusal
        else:
            if not found.region.scop.strided or (strided is not None and strided(found)):
                return found
    assert refusal is not None, "there is a plain view"
    raise refusal


def _views(code: Code, loop: Loop, start: Callable[..., Assumptions], strided: bool) -> Iterator[_View]:
    """The views of an entry, in the order in which they are tried. When the next view is taken, the one before has been
    tried, so its hints are complete. If iterations of the loop exchange values (the pointers to two buffers are
    swapped), the loop unrolled by the period of the exchange comes last.
    """
    period = 1
    for view in _views_at(code, loop, start, period, strided):
        yield view
        period = view.assumptions.hints.exchange_periods.get(loop.header, period)
    longer = unrolled(code.graph, code.lift, loop, period) if period > 1 else None
    if longer is not None:
        graph, forest, lift, whole = longer
        yield from _views_at(replace(code, graph=graph, forest=forest, lift=lift), whole, start, period, strided)


def _views_at(code: Code, loop: Loop, start: Callable[..., Assumptions], period: int, strided: bool) -> Iterator[_View]:
    """The views of one flow graph: the plain one; one with rbp as frame pointer, if it may be one; one with eager
    specialisation, if the plain view has declined any. If ``code.to_the_end``, the same views that also execute the
    last iteration come first. If ``strided``, each view first takes strides that differ between entries for symbols.
    """
    for to_the_end in (True, False) if code.to_the_end else (False,):
        made = functools.partial(start, to_the_end=to_the_end)
        declined = False
        for way in _with_strides(made, strided):
            yield _View(code, loop, way, period)
            declined = declined or bool(way.hints.declined)
        frame = way.registers["rbp"] - way.registers["rsp"]
        if 0 < frame <= FRAME and any(stack_stores(code.lift(b), "rbp") for b in loop.blocks):
            for way in _with_strides(made, strided):
                yield _View(code, loop, way.in_frame(), period)
        if declined:
            for way in _with_strides(functools.partial(made, eager=True), strided):
                yield _View(code, loop, way, period)


def _with_strides(made: Callable[..., Assumptions], strided: bool) -> Iterator[Assumptions]:
    """The assumptions of a view: if ``strided``, those with symbols for strides first. Where no stride came up that
    differs between entries, these are all. Their hints are those of the view that is made of them."""
    way = made(strided=strided)
    yield way
    if strided and way.hints.strides:
        yield made()


def _lifted(view: _View, displaced: bytes, budget: Budget, observer: Observer | None) -> Lifted:
    """Repeats attempts until one makes no further request. The order of operands does not matter to symbolic execution,
    so after ``KeepOperandOrder`` its result is used again.
    """
    code, assumptions = view.code, view.assumptions
    outer: OuterLoop | None = None
    for _ in range(ATTEMPTS):
        budget.check()
        try:
            if outer is None:
                executor = Executor(code.graph, code.forest, code.lift, assumptions, budget, code.roots)
                outer = executor.outermost(view.loop)
            return _described(view, assumptions, outer, displaced, budget, observer)
        except Request as request:
            assumptions = assumptions.granting(request)
            outer = outer if isinstance(request, KeepOperandOrder) else None
        except RecursionError:
            raise Rejected(Reason.NON_AFFINE, "values in the loop are nested too deeply") from None
    raise Rejected(Reason.NON_AFFINE, "too many values would have to be constants")


def _described(view: _View, assumptions: Assumptions, outer: OuterLoop, displaced: bytes, budget: Budget,
               observer: Observer | None) -> Lifted:
    """``outer`` as a region, under the ``assumptions`` that it was executed under."""
    invariants = EntryInvariants(assumptions, outer.steps, outer.numerator, outer.divisor)
    outer = _related(outer, invariants)
    evidence = Evidence.of(assumptions, outer, invariants)
    aliasing = Aliasing(outer.ranges, evidence.sample, limits(evidence.proofs), budget=budget)
    recovered = _recovered(outer, aliasing, evidence)
    registers = {c.location for c in outer.node.carried} & {*GENERAL, *LANES}
    dead = dead_registers(view.code.graph, view.code.lift, view.loop.header, registers)
    evidence.sample |= private_sample(s for c in statements_of(recovered.loop) for a in c.accesses for s in a.symbols
                                      if s.startswith(PRIVATE))
    statements, context = recovered.loop, StatementContext(evidence, aliasing)
    for each in PASSES:
        statements = each.run(statements, context)
        if observer is not None:
            observer(each.name, statements)
    made = region(recovered, statements, evidence, dead, aliasing.assumed, displaced)
    return Lifted(replace(made, period=view.period), outer, statements, assumptions.samples())


def _recovered(outer: OuterLoop, aliasing: Aliasing, evidence: Evidence) -> Recovered:
    """The statements of ``outer``. Where vector lanes that seem never to change are carried, asks to assume that they
    do not."""
    steady = _steady_lanes(outer, evidence.assumptions)
    try:
        recovered = evidence.answered(
            lambda: recover(outer.node, aliasing, evidence.demands, evidence.always, evidence.assumptions.kept))
    except Rejected as refused:
        if refused.reason is Reason.CARRIED_VALUE and steady:
            raise AssumeInvariantLane(steady) from None
        raise
    places = [m.location for m in recovered.memory_backed] + [a.location for a in recovered.private_backed]
    carried = {f"{p.register}.{p.offset // 8}" for p in places if isinstance(p, Lane)}
    if carried & steady.keys():
        raise AssumeInvariantLane({lane: number for lane, number in steady.items() if lane in carried})
    return recovered


def _steady_lanes(outer: OuterLoop, assumptions: Assumptions) -> dict[str, int]:
    """Vector lanes that an iteration sets to a number that they hold already, on some path: cleared for the next
    iteration, or as the upper part of what an AVX instruction writes. The next attempt proves that they keep it."""
    found: dict[str, int] = {}
    flow = Flow.of(outer.node)
    for carried in outer.node.carried:
        name, _, lane = carried.location.partition(".")
        if carried.location not in LANES or carried.location in assumptions.lanes:
            continue
        held = assumptions.vectors.get(name, b"")[8 * int(lane):][:8]
        numbers = {constant_of(v) for v in _set_to(carried.following, flow) if v != carried.entry}
        number = numbers.pop() if len(numbers) == 1 else None
        if number is not None and held == (number % (1 << 64)).to_bytes(8, "little"):
            found[carried.location] = number % (1 << 64)
    return found


def _set_to(value: Value, flow: Flow) -> Iterator[Value]:
    """The values that ``value`` may be, depending on which path branches and loops took."""
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


def _related(outer: OuterLoop, invariants: EntryInvariants) -> OuterLoop:
    """``outer`` with inner bounds over counters, parameters and R alone. Raises AssumeAll with the equations that make
    them so, or Rejected(TRIP_COUNT) where none does."""
    def live(bound: Linear) -> Linear:
        return Linear(tuple(t for t in bound.terms if t[0] != TRIPS and not t[0].startswith((LOOP_COUNTER, PARAMETER))))

    inner = _bounds(outer)
    if invariants.assumptions.by_trips or any(invariants.moves(live(b)) for b in inner.union(*map(_numerators, inner))):
        outer = outer.rewritten(invariants.by_trips())
    inner = _bounds(outer)
    needs: dict[Linear, AssumeEqual] = {}
    for bound in sorted(map(live, inner.union(*(_numerators(b) for b in inner))), key=str):
        if not bound.is_constant:
            invariant = invariants.invariant(bound)
            if invariant.is_constant:
                raise Rejected(Reason.TRIP_COUNT, f"the bound {bound} does not follow from the iterations that remain")
            needs[invariant] = AssumeEqual(invariant, invariants.moves(bound), symbolic=True)
    if needs:
        raise AssumeAll(tuple(needs.values()))
    return outer


def _bounds(outer: OuterLoop) -> frozenset[Linear]:
    """The trip counts and conditions of the inner loops, and of the loads of row pointers in them."""
    return bounds(outer.node).union(*(loads.bounds for loads in outer.row_loads))


def _numerators(linear: Linear) -> frozenset[Linear]:
    """The numerators of the floor divisions in ``linear``."""
    inside = frozenset(q.numerator for q in linear.quotients)
    return inside.union(*map(_numerators, inside))
