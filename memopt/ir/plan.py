"""Schedules of a region, without machine code: tiles, packing and register tile, or dates and leaves.

For a contraction (one statement, an accumulator, products over a reduction dimension) the schedule is a ``Plan``. The
loop nest made from it is, outermost first::

    for each tile of ``loops`` (dimension, tile size), in order
        pack the operands whose Pack.level is this loop
    register tile: ``rows`` x ``vectors`` accumulators, reduction innermost and ascending

Everything else is a ``LoopPlan``: dates for each statement, and the register tile at the leaf. A ``NestPlan`` runs
several plans one after the other.

The text forms list all fields, defaults left out, and memopt.ir.parse reads them back::

    plan avx512 S0: j/1032 k/512 i/128 j/24 i/8
    pack read 1 in i-panels of 8 inside loop 2
    tile i:8 x j:3x8 over k

    loops avx2, 7 trial iterations
    summary "vectors along j, avx2"
    S0[i<R, j<100]: A[i, j] = add(A[i, j], B[i])
    S0 at (floor((i)/4)) rows i:4 vectors j:2
"""

from __future__ import annotations

import json

from memopt.ir.frozen import dataclass
from memopt.ir.isa import Isa as Isa
from memopt.ir.linear import Linear
from memopt.ir.scop import Statement

MOST_LANES = 32
"""Rows of at most this many lanes that follow each other in memory are collapsed into one long vector dimension.
Longer rows fill vectors by themselves, and the limit keeps the bounds of the collapsed loop small."""


@dataclass(frozen=True, slots=True)
class TileLoop:
    """Loop over tiles of ``size`` iterations of ``dimension``. Sizes nest: an inner tile's divides its outer tile's."""

    dimension: str
    size: int

    def __str__(self) -> str:
        return f"{self.dimension}/{self.size}"


@dataclass(frozen=True, slots=True)
class Pack:
    """Packing of the operand ``Statement.reads[read]`` into contiguous scratch, just inside tile loop number ``level``
    (an index into ``Plan.loops``): panels of ``width`` elements along ``dimension`` by the reduction dimension."""

    read: int
    dimension: str
    width: int
    level: int

    def __str__(self) -> str:
        return f"pack read {self.read} in {self.dimension}-panels of {self.width} inside loop {self.level}"


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """Accumulators in registers: ``row_count`` iterations of ``rows`` by ``vector_count`` vectors of ``lanes``
    iterations of ``vector``, while ``reduction`` runs."""

    rows: str
    row_count: int
    vector: str
    vector_count: int
    lanes: int
    reduction: str

    def __str__(self) -> str:
        return (f"tile {self.rows}:{self.row_count} x {self.vector}:{self.vector_count}x{self.lanes}"
                f" over {self.reduction}")


@dataclass(frozen=True, slots=True)
class Plan:
    """The schedule of a contraction. ``fuse_multiply_add``: only under ``--fp fast``."""

    isa: Isa
    statement: str
    loops: tuple[TileLoop, ...]
    packs: tuple[Pack, ...]
    tile: RegisterTile
    fuse_multiply_add: bool = False

    def __str__(self) -> str:
        fused = ", fused multiply-add" if self.fuse_multiply_add else ""
        head = " ".join((f"plan {self.isa.value} {self.statement}{fused}:", *map(str, self.loops)))
        return "\n".join((head, *map(str, self.packs), str(self.tile)))

    @property
    def trial_iterations(self) -> int:
        """Iterations of the patched loop in which a trial meets full and partial tiles."""
        return max(self.tile.row_count, self.tile.vector_count * self.tile.lanes) + 3

    @property
    def summary(self) -> str:
        """One line for the user."""
        order = ", ".join(map(str, self.loops))
        packs = f", {len(self.packs)} operands packed" if self.packs else ""
        tile = f"{self.tile.row_count}x{self.tile.vector_count * self.tile.lanes}"
        return f"tiled ({order}){packs}, {tile} register tile, {self.isa.value}"


@dataclass(frozen=True, slots=True)
class Date:
    """A component of a schedule: ``floor(expression / divisor)``, Linear over a statement's dimensions and live-in
    symbols."""

    expression: Linear
    divisor: int = 1

    def __str__(self) -> str:
        return f"floor(({self.expression})/{self.divisor})" if self.divisor != 1 else str(self.expression)


@dataclass(frozen=True, slots=True)
class Leaf:
    """The schedule of one statement, and what runs inside one of its macro instances.

    A macro instance is the set of the statement's points with equal ``dates``; macro instances run in lexicographic
    order of their dates, over all leaves of the plan (all have equally many dates). A constant date orders leaves.

    Inside a macro instance the dimensions ``rows``, ``vector`` and ``sequential`` vary (those that are named); every
    other dimension is an affine function of the dates (with divisor 1) and of these. Points that differ in ``rows``
    or ``vector`` are independent of each other and may run in any order; points that differ in ``sequential`` alone
    run in its ascending order. The code generator runs register tiles of ``row_count`` rows by ``vector_count``
    vectors with ``sequential`` innermost.

    ``promote``: the written cell does not depend on ``sequential``, and no other read of the statement touches it in
    the same macro instance, so it may stay in a register while ``sequential`` runs.
    """

    statement: str
    dates: tuple[Date, ...]
    sequential: str | None = None
    rows: str | None = None
    row_count: int = 1
    vector: str | None = None
    vector_count: int = 1
    promote: bool = False
    streaming: bool = False  # the written cells are not read again soon, so non-temporal stores may pay

    def __str__(self) -> str:
        parts = [f"{self.statement} at ({', '.join(map(str, self.dates))})"]
        if self.rows is not None or self.row_count != 1:
            parts.append(f"rows {self.rows or '-'}:{self.row_count}")
        if self.vector is not None or self.vector_count != 1:
            parts.append(f"vectors {self.vector or '-'}:{self.vector_count}")
        if self.sequential is not None:
            parts.append(f"over {self.sequential}")
        return " ".join(parts) + (", promoted" if self.promote else "") + (", streaming" if self.streaming else "")


@dataclass(frozen=True, slots=True)
class Storage:
    """The storage mapping of a private array: cell [s0, s1, ...] has index ``s_d - origins[d]`` of ``sizes[d]``, row by
    row.

    ``origins`` are Linear over the names ``d0``, ``d1``, ... of the dates of the plan's leaves. These dates are equal
    for all leaves that access the array, so one origin serves all of them.
    """

    array: str
    origins: tuple[Linear, ...]
    sizes: tuple[int, ...]

    def __str__(self) -> str:
        pairs = ", ".join(f"{o}:+{s}" for o, s in zip(self.origins, self.sizes, strict=True))
        return f"store {self.array} [{pairs}]"


@dataclass(frozen=True, slots=True)
class Rebase:
    """In a plan's pieces of ``statement`` (the name it was lifted with), the counter of ``dimension`` is larger by
    ``by`` than in the lifted statement. ``by`` is Linear over the loops around the dimension."""

    statement: str
    dimension: str
    by: Linear

    def __str__(self) -> str:
        return f"{self.statement} counts {self.dimension} from {self.by}"


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """A schedule of any statements. isl makes the loops over macro instances, memopt makes the leaves."""

    isa: Isa
    # The statements of the region that the plan covers, after splitting. They are pieces of the lifted ones: the same
    # text, but for the counters that ``rebases`` moves, with further conditions, and perhaps with further dimensions at
    # the end, which the conditions tie to the others (the number of a block).
    statements: tuple[Statement, ...]
    leaves: tuple[Leaf, ...]
    storage: tuple[Storage, ...] = ()
    # Iterations of the patched loop in which a trial meets full and partial tiles.
    trial_iterations: int = 3
    summary: str = ""  # one line for the user
    fuse_multiply_add: bool = False  # only under ``--fp fast``
    rebases: tuple[Rebase, ...] = ()
    # The version is entered only if R is at most this: private arrays have that much room.
    most_trips: int | None = None

    def __str__(self) -> str:
        lines = [f"loops {self.isa.value}"
                 + (", fused multiply-add" if self.fuse_multiply_add else "")
                 + (f", {self.trial_iterations} trial iterations" if self.trial_iterations != 3 else "")
                 + (f", at most {self.most_trips} trips" if self.most_trips is not None else "")]
        lines += [f"summary {json.dumps(self.summary)}"] if self.summary else []
        return "\n".join((*lines, *map(str, (*self.rebases, *self.statements, *self.leaves, *self.storage))))


Part = Plan | LoopPlan


@dataclass(frozen=True, slots=True)
class NestPlan:
    """The plans of a nest's statements after loop distribution: each part runs over all iterations before the next one
    starts.

    ``most_iterations``: the version runs at most this many iterations of the patched loop at once, because private
    arrays are that large. The remaining iterations enter it again.
    """

    parts: tuple[Part, ...]
    most_iterations: int | None = None

    @property
    def isa(self) -> Isa:
        """The instruction set, which all parts share."""
        return self.parts[0].isa

    @property
    def most_trips(self) -> int | None:
        """The version is entered only if R is at most this; None: for any R."""
        limits = [p.most_trips for p in self.parts if isinstance(p, LoopPlan) and p.most_trips is not None]
        return min(limits, default=None)

    @property
    def summary(self) -> str:
        """One line for the user."""
        if len(self.parts) == 1:
            return self.parts[0].summary
        return f"distributed in {len(self.parts)}, first {self.parts[0].summary}"

    def __str__(self) -> str:
        most = f", at most {self.most_iterations} iterations" if self.most_iterations is not None else ""
        return "\n".join((f"nest{most}", *map(str, self.parts)))
