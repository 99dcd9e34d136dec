"""A plan: what is to be done to a region, without machine code. It is what a plan cache may keep.

For a contraction (one statement, an accumulator, products over a reduction dimension) the loop nest made from a
plan is, outermost first::

    for each tile of ``loops`` (dimension, tile size), in order
        pack the operands whose Pack.level is this loop
    register tile: ``rows`` x ``vectors`` accumulators, reduction innermost and ascending

Everything else is a ``LoopPlan``: dates for each statement, and the register tile at the leaf.
"""

from __future__ import annotations

from dataclasses import dataclass

from memopt.ir.isa import Isa as Isa
from memopt.ir.linear import Linear
from memopt.ir.scop import Statement

MOST_LANES = 32
"""Lanes of a row at most whose rows, where they follow each other in memory, the generator runs as one long vector
dimension. Longer rows fill vectors by themselves; and the bounds of the joined loop stay small."""


@dataclass(frozen=True, slots=True)
class TileLoop:
    """Loop over tiles of ``size`` iterations of ``dimension``; sizes nest (an inner tile divides its outer)."""

    dimension: str
    size: int

    def __str__(self) -> str:
        return f"{self.dimension}/{self.size}"


@dataclass(frozen=True, slots=True)
class Pack:
    """Copy operand ``Statement.reads[read]`` to contiguous scratch just inside tile loop number ``level``
    (index into ``Plan.loops``): panels of ``width`` elements along ``dimension`` by the reduction dimension."""

    read: int
    dimension: str
    width: int
    level: int

    def __str__(self) -> str:
        return f"pack read {self.read} in {self.dimension}-panels of {self.width} inside loop {self.level}"


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """``row_count`` values of ``rows`` x (``vector_count`` vectors of ``lanes`` values) of ``vector``."""

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
    """``fuse_multiply_add`` only under ``--fp fast``. ``summary`` is the user's one-line description."""

    isa: Isa
    statement: str
    loops: tuple[TileLoop, ...]
    packs: tuple[Pack, ...]
    tile: RegisterTile
    fuse_multiply_add: bool = False

    def __str__(self) -> str:
        order = " ".join(map(str, self.loops))
        return "\n".join((f"plan {self.isa.value} {self.statement}: {order}", *map(str, self.packs), str(self.tile)))

    @property
    def trial_iterations(self) -> int:
        return max(self.tile.row_count, self.tile.vector_count * self.tile.lanes) + 3

    @property
    def summary(self) -> str:
        order = ", ".join(map(str, self.loops))
        packs = f", {len(self.packs)} operands packed" if self.packs else ""
        tile = f"{self.tile.row_count}x{self.tile.vector_count * self.tile.lanes}"
        return f"tiled ({order}){packs}, {tile} register tile, {self.isa.value}"


@dataclass(frozen=True, slots=True)
class Date:
    """``floor(expression / divisor)``, Linear over a statement's dimensions (and live-in symbols)."""

    expression: Linear
    divisor: int = 1

    def __str__(self) -> str:
        return f"floor(({self.expression})/{self.divisor})" if self.divisor > 1 else str(self.expression)


@dataclass(frozen=True, slots=True)
class Leaf:
    """One statement's place in a loop schedule, and what runs inside one of its macro instances.

    A macro instance is the set of the statement's points with equal ``dates``; macro instances run in lexicographic
    order of their dates, over all leaves of the plan (all have equally many dates). A constant date orders leaves.

    Inside a macro instance the dimensions ``rows``, ``vector`` and ``sequential`` vary (those that are named); every
    other dimension is an affine function of the dates (with divisor 1) and of these. Points that differ in ``rows``
    or ``vector`` are independent of each other and may run in any order; points that differ in ``sequential`` alone
    run in its ascending order. The code generator runs register tiles of ``row_count`` rows by ``vector_count``
    vectors with ``sequential`` innermost.

    ``promote``: the written cell does not depend on ``sequential`` and no other read of the statement meets it in the
    same macro instance, so it may stay in a register while ``sequential`` runs.
    """

    statement: str
    dates: tuple[Date, ...]
    sequential: str | None = None
    rows: str | None = None
    row_count: int = 1
    vector: str | None = None
    vector_count: int = 1
    promote: bool = False
    streaming: bool = False  # the written cells are not read again soon: non-temporal stores may pay

    def __str__(self) -> str:
        parts = [f"{self.statement} at ({', '.join(map(str, self.dates))})"]
        if self.rows:
            parts.append(f"rows {self.rows}:{self.row_count}")
        if self.vector:
            parts.append(f"vectors {self.vector}:{self.vector_count}")
        if self.sequential:
            parts.append(f"over {self.sequential}{', promoted' if self.promote else ''}")
        return " ".join(parts)


@dataclass(frozen=True, slots=True)
class Storage:
    """Where a private array lies: cell [s0, s1, ...] at index ``s_d - origins[d]`` of ``sizes[d]``, row by row.

    ``origins`` are Linear over the names ``d0``, ``d1``, ... of the dates of a plan's leaves: the same dates for every
    leaf that accesses the array, so one origin serves all of them.
    """

    array: str
    origins: tuple[Linear, ...]
    sizes: tuple[int, ...]

    def __str__(self) -> str:
        pairs = ", ".join(f"{o}:+{s}" for o, s in zip(self.origins, self.sizes, strict=True))
        return f"store {self.array} [{pairs}]"


@dataclass(frozen=True, slots=True)
class Rebase:
    """In a plan's pieces of ``statement`` (its lifted name) the counter of ``dimension`` is larger by ``by``, Linear
    over the loops around it, than in the lifted statement."""

    statement: str
    dimension: str
    by: Linear

    def __str__(self) -> str:
        return f"{self.statement} counts {self.dimension} from {self.by}"


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """A schedule of any statements: loops over macro instances made by isl, leaves made by memopt.

    ``statements``: the statements of the region it covers, after splitting: pieces of those lifted, with the same text
    (but for the counters that ``rebases`` moves), further conditions, and perhaps further dimensions at the end that
    the conditions tie to the others (the number of a block). ``trial_iterations``: iterations of the patched loop in
    which a trial meets full and ragged tiles. ``summary`` is the user's one-line description. ``most_trips``: the
    version is entered only where R is no more (private arrays have that much room).
    """

    isa: Isa
    statements: tuple[Statement, ...]
    leaves: tuple[Leaf, ...]
    storage: tuple[Storage, ...] = ()
    trial_iterations: int = 3
    summary: str = ""
    fuse_multiply_add: bool = False
    rebases: tuple[Rebase, ...] = ()
    most_trips: int | None = None

    def __str__(self) -> str:
        return "\n".join((f"loops {self.isa.value}", *map(str, self.rebases), *map(str, self.leaves),
                          *map(str, self.storage)))


Part = Plan | LoopPlan


@dataclass(frozen=True, slots=True)
class NestPlan:
    """The plans of a nest's statements, distributed: each runs over all iterations before the next one starts.

    ``most_iterations``: the version never runs more than this many iterations of the patched loop at once (private
    arrays are that large); what is left enters it again.
    """

    parts: tuple[Part, ...]
    most_iterations: int | None = None

    @property
    def isa(self) -> Isa:
        return self.parts[0].isa

    @property
    def most_trips(self) -> int | None:
        """The version is entered only where R is no more than this."""
        limits = [p.most_trips for p in self.parts if isinstance(p, LoopPlan) and p.most_trips is not None]
        return min(limits, default=None)

    @property
    def summary(self) -> str:
        if len(self.parts) == 1:
            return self.parts[0].summary
        return f"distributed in {len(self.parts)}, first {self.parts[0].summary}"

    def __str__(self) -> str:
        return "\n".join(map(str, self.parts))
