"""``memopt profile --affine``: hot nests are lifted as if they were to be replaced, and what follows from addresses and
bounds goes into the profile: working sets without a trace.

Invariant: nothing is installed; the program only pays for the copies in which its loops are looked at.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field, replace

from memopt.instrumentation.memory_operands import accesses
from memopt.ir.graph import Loop
from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Sample
from memopt.ir.scop import TRIPS, Scop
from memopt.lifting.execution.executor import OuterLoop
from memopt.lifting.survey.elapsed_iterations import elapsed_iterations
from memopt.lifting.survey.footprints import addresses, curves, from_the_start, with_cells
from memopt.lifting.values.loop_tree import Guarded, LoopNode
from memopt.session.improving.decision import Decision
from memopt.session.improving.improver import Improver
from memopt.session.improving.kept_shadow import KeptShadow
from memopt.session.improving.site import Site, isolated, screen
from memopt.session.profiling.images import Images
from memopt.traces.core.format import LINE, PAGE

_LOOKS = 4  # at a loop that has too few iterations left whenever it is met
_REACH_SECONDS = 3.0  # to the next iteration of a loop; where it takes longer, those inside are looked at


@dataclass(frozen=True, slots=True)
class Nest:
    """``header``: live address; ``values``: of its live-in symbols and R where it was met, with ``left`` of its
    iterations left; ``loops``: from its first iteration on, if that is known, else from there. An iteration of them is
    ``period`` ones of the program. ``whole``: up to the end of the last one; else some of it is not known."""

    header: int
    left: int
    loops: LoopNode
    scop: Scop
    values: Sample
    period: int
    whole: bool


@dataclass
class Surveyor(Improver):
    """Lifts loops, keeps them in ``nests``, and leaves them as they are."""

    nests: list[Nest] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._copies, self._to_the_end = KeptShadow(_REACH_SECONDS), True
        super().__post_init__()

    def _replace(self, decision: Decision, site: Site, candidate: Loop) -> None:
        from runtime.target.eligibility import check_process

        site, loop = isolated(self.pid, site, candidate)
        operations = screen(site, loop)
        check_process(self.pid)
        with self._timed("capture"):
            lifted, _ = self._capture_and_lift(site, loop, operations)
        count = lifted.region.trips
        trips = count.numerator.evaluate(lifted.entry) // count.divisor
        values = {**lifted.entry, TRIPS: trips}
        loops, whole = _to_its_end(lifted.outer, trips)
        left = trips + lifted.outer.leaves_first
        if lifted.region.period == 1:
            over = elapsed_iterations(site.graph, operations, loop, lifted.outer.steps, lifted.entry)
            loops = from_the_start(loops, over or 0, values)
        loops = with_cells(loops, _stack(site, loop, addresses(loops.items), lifted.entry))
        self.nests.append(Nest(loop.header, left, loops, lifted.region.scop, values, lifted.region.period,
                               whole and lifted.region.period == 1))
        raise Rejected(Reason.DRY_RUN)

    def _most_tries(self, reason: Reason, seconds: float) -> int:
        """A loop is met in its last iterations once in a while; nothing is lost but time by another look."""
        return _LOOKS if reason is Reason.TOO_SHORT else super()._most_tries(reason, seconds)


def _to_its_end(outer: OuterLoop, trips: int) -> tuple[LoopNode, bool]:
    """The loop, which goes round ``trips`` times, with the part of an iteration that is left in the middle after these;
    whether that is known."""
    node = replace(outer.node, trips=Linear.of(trips))
    if not outer.leaves_first or outer.last is None:
        return node, not outer.leaves_first
    counter = Linear.symbol(node.counter)
    items = Guarded((-counter + (trips - 1),), node.items), Guarded((counter - trips,), outer.last)
    return replace(node, trips=Linear.of(trips + 1), items=items), True


def _stack(site: Site, loop: Loop, known: frozenset[int], entry: Sample) -> dict[int, list[tuple[int, int]]]:
    """Cells on the stack that stand for registers: lifting takes them out. Address and bytes, by the header of the
    innermost loop around."""
    found: dict[int, list[tuple[int, int]]] = {}
    inside = sorted((x for x in site.forest.loops if x.blocks <= loop.blocks), key=lambda x: len(x.blocks))
    for block in loop.blocks:
        header = next((x.header for x in inside if block in x.blocks), loop.header)
        found.setdefault(header, []).extend(
            (entry[access.base] + access.displacement, access.size)
            for instruction in site.graph.blocks[block].instructions if instruction.address not in known
            for access in accesses(instruction) or ()
            if access.base in ("rsp", "rbp") and access.index is None)
    return found


def write(connection: sqlite3.Connection, images: Images, nests: list[Nest]) -> list[str]:
    """Rows of ``nest`` and ``derived_set``; what could not be derived, for the user."""
    left_out: list[str] = []
    connection.execute("BEGIN")
    for number, nest in enumerate(nests, 1):
        place = images.place(nest.header)
        image, header = (None, nest.header) if place is None else (place.path, nest.header - place.bias)
        connection.execute("INSERT INTO nest VALUES (?, (SELECT id FROM image WHERE path = ?), ?, ?, ?)",
                           (number, image, header, nest.left, str(nest.scop)))
        for found in curves(nest.loops, nest.values, LINE, PAGE):
            if not found.curve:
                left_out.append(f"what loops at depth {found.depth} of the nest at {nest.header:#x} touch is unknown: "
                                "too many bounds or addresses to go through; --memory traces it")
            loop = connection.execute(
                "SELECT l.id FROM loop l JOIN function f ON f.id = l.function JOIN image m ON m.id = f.image "
                "WHERE m.path = ? AND l.header = ?", (image, header + found.header - nest.header)).fetchone()
            period = nest.period if found.depth == 1 else 1
            connection.executemany("INSERT INTO derived_set VALUES (?, ?, ?, ?, ?, ?, ?)", (
                (number, None if loop is None else loop[0], found.depth, found.depth > 1 or nest.whole,
                 period * point.iterations, point.lines, point.pages) for point in found.curve))
    connection.execute("COMMIT")
    return list(dict.fromkeys(left_out))


