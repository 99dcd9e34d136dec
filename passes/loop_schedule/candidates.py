"""The loop scheduler: candidate loop plans for the statements of a region, best first by the cost model.

Example: for a Jacobi stencil the candidates are the original order with vectors, and time tiles of 4, 6, 8, ... steps.

In: a ``Scop``, facts about its symbols, a ``Context``. Out: ``LoopPlan``s, or ``Rejected`` when none is expected to
pay. The alternatives are the plain schedule (``allen_kennedy``), time tiles, split statements and blocks. Legality is
not checked here: ``passes.legality.loops`` proves each plan before it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import ceil, prod

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.ir.plan import Leaf, LoopPlan, Storage
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.scop import TRIPS, Array, Scop, Statement
from memopt.models.loop_cost import average_trips, original_cycles
from memopt.polyhedral.dependence_pieces import dependence_pieces
from memopt.polyhedral.isl import budget
from passes.context import Context
from passes.loop_schedule.allen_kennedy import AllenKennedy, cycles
from passes.loop_schedule.blocking import STEPS, blockings
from passes.loop_schedule.carried_dependences import DependencePieces, carry, within
from passes.loop_schedule.index_set_splitting import split
from passes.loop_schedule.leaf_options import Option, latency
from passes.loop_schedule.rebasing import rebase
from passes.loop_schedule.storage_mapping import store

# Original over planned time that a plan must promise. The trial run decides; this drops nests that cannot win.
LEAST_GAIN = 1.03
# The same for a loop that is vectorised already: its lines may come from further out than the cost model can tell.
WIDENED_GAIN = 1.3
UNROLLED = 4  # vectors that one iteration of such a loop computes at most
ENTRY = 500  # cycles of one entry: guards, saving and restoring registers, rejoin
LEAST_ROOM = 1024  # iterations that private arrays have room for at least, where their room is limited
FEWEST_STEPS = 16  # assumed steps of a time loop, however few were left when it was found
BLOCKED_SERIAL = 1  # serial loops that are tried inside blocks


def loop_plans(
    scop: Scop, context: Context, facts: tuple[Linear, ...] = (), least_gain: float = LEAST_GAIN
) -> Iterator[LoopPlan]:
    """Candidate plans for all of ``scop``'s statements, best first. Their legality is not checked here.

    Every one of ``facts`` (Linear over symbols) is >= 0. ``least_gain``: original over planned time that a plan must
    promise. Raises ``Rejected(NO_PLAN)`` when nothing is to be gained, ``Rejected(NO_SCHEDULE)`` when there are too
    many dependences to look at.
    """
    scop, rebases = rebase(_with_extents(scop, context))
    with budget():
        pairs = dependence_pieces(scop, facts)
        in_vectors = context.packed > 0 and all(_flat(s, context) for s in scop.statements)
        before = sum(original_cycles(scop, s, _latency(s, pairs), average_trips(s, context.trips), context.machine,
                                     _lanes(scop, s, context) if in_vectors else 1) for s in scop.statements)
        least_gain = max(least_gain, WIDENED_GAIN) if in_vectors and least_gain else least_gain
        whole = AllenKennedy(scop, pairs, context)
        candidates = [_Candidate(scop, whole.made())]
        longer = replace(context, trips=_entered_with(scop, context.trips))
        candidates += [_Candidate(scop, found, f"{steps} time steps at once",
                                  context.trips / (ceil(longer.trips / steps) * steps))
                       for found, steps in AllenKennedy(scop, pairs, longer).time_tiled()]
        pieces = split(scop, pairs)
        if pieces is not None:
            found = AllenKennedy(pieces, dependence_pieces(pieces, facts), context).made()
            candidates.append(_Candidate(pieces, found))
        for blocking in () if _is_product(candidates[0].found) else blockings(scop, pairs, context.trips, facts=facts):
            inside = AllenKennedy(blocking.scop, dependence_pieces(blocking.scop, facts), context, BLOCKED_SERIAL,
                                  blocking.loops)
            candidates.append(_Candidate(blocking.scop, inside.blocked(blocking), f"blocks of {STEPS}"))
    candidates.sort(key=lambda c: c.cycles)
    best = ENTRY + candidates[0].cycles
    if before < least_gain * best:
        raise Rejected(Reason.NO_PLAN, f"expected {before / best:.2f} times as fast")
    refusals: list[Rejected] = []
    made = 0
    for candidate in candidates:
        if before >= least_gain * (ENTRY + candidate.cycles):
            try:
                with budget():
                    plan = replace(candidate.plan(context, facts), rebases=rebases)
            except Rejected as refusal:
                refusals.append(refusal)
                continue
            made += 1
            yield plan
    if not made:
        raise refusals[0]


def _flat(statement: Statement, context: Context) -> bool:
    """Whether the loops inside the patched loop may be the lanes and unrolled copies of vectors in one loop of the
    original, and no real loops."""
    trips = [d.trips for d in statement.dimensions[1:]]
    return not any(t.symbols for t in trips) and prod(t.constant for t in trips) <= UNROLLED * context.packed


def _lanes(scop: Scop, statement: Statement, context: Context) -> int:
    """Elements in one vector of the original."""
    return max(1, context.packed // scop.array(statement.write.array).element.size)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A schedule of all statements, with the words that describe it to the user."""

    scop: Scop
    found: tuple[Option, ...]
    name: str = ""
    share: float = 1.0  # of the iterations that ``found`` counts, the share that really runs

    @property
    def cycles(self) -> float:
        return cycles(self.found) * self.share

    def plan(self, context: Context, facts: tuple[Linear, ...]) -> LoopPlan:
        """The plan, with storage for private arrays. Raises ``Rejected(NO_PLAN)`` where these would need too much."""
        leaves = tuple(o.leaf for o in self.found)
        stored, most = self._stored({leaf.statement: leaf for leaf in leaves}, context, facts)
        summary = ", ".join(filter(None, (self.name, _summary(self.found, context))))
        return LoopPlan(context.isa, self.scop.statements, leaves, stored, self._trial_iterations, summary,
                        most_trips=most)

    def _stored(self, leaves: Mapping[str, Leaf], context: Context, facts: tuple[Linear, ...]) -> tuple[
            tuple[Storage, ...], int | None]:
        """Storage for private arrays, and the trip count that it limits the version to (None: no limit). Without a
        limit if possible, else for as many iterations as fit."""
        refusal: Rejected | None = None
        for most in (None, *(factor * max(context.trips, LEAST_ROOM) for factor in (4, 2, 1))):
            limit = () if most is None else (Linear.symbol(TRIPS, -1, most),)
            try:
                return store(self.scop, self.scop.statements, leaves, (*facts, *limit)), most
            except Rejected as rejected:
                refusal = refusal or rejected
        assert refusal is not None
        raise refusal

    @property
    def _trial_iterations(self) -> int:
        """Iterations of the patched loop in which a trial meets a full and a ragged tile, where the loop is part of a
        tile."""
        return 3 + max(_span(s, o) for s, o in zip(self.scop.statements, self.found, strict=True))


def _entered_with(scop: Scop, left: int) -> int:
    """Iterations of the patched loop in a usual entry, where ``left`` were found in the middle of one. More than
    ``left`` only for loops whose iterations are all of one length."""
    outer = {TRIPS, *(s.dimensions[0].name for s in scop.statements)}
    alike = not any(d.trips.symbols & outer for s in scop.statements for d in s.dimensions[1:])
    return max(2 * left, FEWEST_STEPS) if alike else left


def _is_product(found: tuple[Option, ...]) -> bool:
    """Whether the most expensive leaf keeps its results in registers already."""
    largest = max(found, key=lambda o: o.cycles).leaf
    return largest.promote and None not in (largest.rows, largest.vector)


def _with_extents(scop: Scop, context: Context) -> Scop:
    """``scop`` with strides for private arrays, row by row as they are likely to be stored. The cost model needs
    them."""
    return replace(scop, arrays=tuple(
        _extended(scop, a, context) if a.private and a.strides else a for a in scop.arrays))


def _extended(scop: Scop, array: Array, context: Context) -> Array:
    extents = [1] * len(array.strides)
    for statement in scop.statements:
        trips = average_trips(statement, context.trips)
        for access in (statement.write, *statement.reads):
            if access.array == array.name:
                spans = [sum(abs(c) * trips.get(n, 1) for n, c in s.terms) for s in access.subscripts]
                extents = [max(a, b, 1) for a, b in zip(extents, spans, strict=True)]
    strides = [array.element.size]
    for extent in reversed(extents[1:]):
        strides.insert(0, strides[0] * extent)
    return replace(array, strides=tuple(strides))


def _latency(statement: Statement, pairs: DependencePieces) -> float:
    """Cycles that an iteration of the innermost original loop waits for the previous one (loop-carried latency)."""
    left: DependencePieces | None = within(pairs, (statement.name,))
    for dimension in statement.dimensions[:-1]:
        left = carry(left or (), {statement.name: Linear.symbol(dimension.name)})
    return latency(statement, left or (), statement.dimensions[-1].name)


def _span(statement: Statement, option: Option) -> int:
    """Iterations of the patched loop in one tile of a leaf."""
    outer, leaf = Linear.symbol(statement.dimensions[0].name), option.leaf
    tiles = {leaf.rows: leaf.row_count, leaf.vector: option.width * leaf.vector_count}
    steps = [d.divisor for d in leaf.dates if d.expression == outer]
    return max(tiles.get(statement.dimensions[0].name, 1), *steps, 1)


def _summary(found: tuple[Option, ...], context: Context) -> str:
    """``vectors along j, rows i, avx512``: the most expensive leaf in words for the user."""
    largest = max(found, key=lambda o: o.cycles).leaf
    parts = [f"vectors along {largest.vector}" if largest.vector else "one element at a time"]
    if largest.rows and largest.row_count > 1:
        parts.append(f"{largest.row_count} rows of {largest.rows} at once")
    if len(found) > 1:
        parts.append(f"{len(found)} statements")
    return ", ".join((*parts, context.isa.value))
