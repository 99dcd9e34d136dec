"""``memopt profile --affine``: working sets of hot nests without a trace, derived from subscripts and bounds.

Example: for ``c[i][j] += a[i][k] * b[k][j]`` with n = 1024 it tells how many cache lines 1, 2, 4, ... iterations of
each of the three loops touch. In: the stages find, capture and lift of the improver; ``Survey`` takes the place of the
rest. Out: a ``Nest`` for each hot nest, and its rows. Nothing is installed: the program pays only for the shadows
(forked copies) in which its loops are captured.
"""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import NoReturn

from memopt.instrumentation.memory_operands import accesses
from memopt.ir.frozen import dataclass
from memopt.ir.graph import Loop
from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Sample
from memopt.ir.scop import TRIPS, Scop
from memopt.lifting.execution.executor import OuterLoop
from memopt.lifting.survey.elapsed_iterations import elapsed_iterations
from memopt.lifting.survey.footprints import addresses, curves, from_the_start, with_cells
from memopt.lifting.values.loop_tree import Guarded, LoopNode
from memopt.session.improving.improver import Improver
from memopt.session.improving.worker import Worker
from memopt.session.profiling.images import Images
from memopt.session.replacing.capture import capture
from memopt.session.replacing.history import History
from memopt.session.replacing.kept_shadow import KeptShadow
from memopt.session.replacing.process import Process
from memopt.session.replacing.site import Site, loop_code
from memopt.traces.core.format import LINE, PAGE

_SHORT_LOOKS = 4  # at a loop that has too few iterations left whenever it is captured
_REACH_SECONDS = 3.0  # to the next iteration of a loop; where it takes longer, the loops inside are looked at


@dataclass(frozen=True, slots=True)
class Nest:
    """A nest that was lifted."""

    header: int  # run-time address
    left: int  # iterations left where it was captured
    loops: LoopNode  # from its first iteration on, if that is known, else from where it was captured
    scop: Scop
    values: Sample  # of its live-in symbols and R where it was captured
    period: int  # iterations of the program in one of ``loops``
    whole: bool  # ``loops`` goes up to the end of the last iteration; else some of that is not known


class Survey:
    """Lifts loops as the improver finds them, keeps them in ``nests``, and leaves them as they are."""

    def __init__(self) -> None:
        self.nests: list[Nest] = []

    def improver(self, process: Process, worker: Worker) -> Improver:
        """The improver that surveys loops instead of replacing them.

        A loop that has too few iterations left is looked at several times: once in a while a loop is met in its last
        iterations, and another look costs only time."""
        return Improver(process, worker, history=History(KeptShadow(_REACH_SECONDS)), replace_loop=self.survey,
                        short_looks=_SHORT_LOOKS)

    def survey(self, process: Process, site: Site, loop: Loop, history: History) -> NoReturn:
        """Raises Rejected: DRY_RUN for a loop that was lifted, else the reason why it was not."""
        code = loop_code(process, site, loop)
        lifted, _ = capture(process, code, history, to_the_end=True)
        site, loop = code.site, code.loop
        count = lifted.region.trips
        trips = count.numerator.evaluate(lifted.entry) // count.divisor
        values = {**lifted.entry, TRIPS: trips}
        loops, whole = _to_its_end(lifted.outer, trips)
        left = trips + lifted.outer.leaves_first
        if lifted.region.period == 1:
            steps = {p: s for p, s in lifted.outer.steps.items() if isinstance(s, int)}
            over = elapsed_iterations(site.graph, code.operations, loop, steps, lifted.entry)
            loops = from_the_start(loops, over or 0, values)
        loops = with_cells(loops, _stack(site, loop, addresses(loops.items), lifted.entry))
        self.nests.append(Nest(loop.header, left, loops, lifted.region.scop, values, lifted.region.period,
                               whole and lifted.region.period == 1))
        raise Rejected(Reason.DRY_RUN)


def _to_its_end(outer: OuterLoop, trips: int) -> tuple[LoopNode, bool]:
    """The loop with ``trips`` iterations, and with the part of one more iteration that it leaves in the middle; and
    whether that part is known."""
    node = replace(outer.node, trips=Linear.of(trips))
    if not outer.leaves_first or outer.last is None:
        return node, not outer.leaves_first
    counter = Linear.symbol(node.counter)
    items = Guarded((-counter + (trips - 1),), node.items), Guarded((counter - trips,), outer.last)
    return replace(node, trips=Linear.of(trips + 1), items=items), True


def _stack(site: Site, loop: Loop, known: frozenset[int], entry: Sample) -> dict[int, list[tuple[int, int]]]:
    """The accesses to spilled registers on the stack, which lifting takes out: (address, bytes) by the header of the
    innermost loop around. ``known``: addresses of the instructions whose accesses are in the lifted nest."""
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
    """Write the rows of ``nest`` and ``derived_set``; lines for the user about what could not be derived."""
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


