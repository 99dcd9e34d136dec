"""Tile sizes from the machine description, not from search.

The register tile keeps as many independent accumulators as the register file holds and loads as few operands as
possible for them; the cache tiles keep a block of each operand in half of its cache (Goto and van de Geijn,
"Anatomy of high-performance matrix multiplication", ACM TOMS 34(3), 2008; Low et al., "Analytical modeling is
enough for high-performance BLIS", ACM TOMS 43(2), 2016). Half of L1 for the two panels in use, as they have it, is
too little where vectors are long: a tile of 8 x 24 doubles spends a third of its time fetching results at depth 96,
none to speak of at 512, with panels that come from L2 just in time.

Invariant: every size is at least 1, and a tile of a dimension is a multiple of the register tile along it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from memopt.ir.plan import Isa
from memopt.machine.description import Machine

# Independent additions that keep the adders busy: latency (4 cycles at most since Skylake and Zen 2) x 2 pipes.
ACCUMULATORS_FOR_LATENCY = 8

# Cycles per line: results, from wherever they are; vector panels from the outermost cache; panels from L2, which the
# arithmetic hides for the most part.
RESULT_LINE = 10.0
OUTER_PANEL_LINE = 4.0
INNER_PANEL_LINE = 0.15

# What the leaf compiler's register map sets aside (vector registers): accumulators, vectors of one operand.
MOST_ACCUMULATORS = {Isa.SSE2: 12, Isa.AVX2: 12, Isa.AVX512: 24}
MOST_VECTORS = {Isa.SSE2: 2, Isa.AVX2: 2, Isa.AVX512: 3}


@dataclass(frozen=True, slots=True)
class RegisterNeeds:
    """Vector registers of one step of the reduction beside the accumulators: ``per_vector`` for each vector of the
    tile, ``fixed`` for broadcasts, temporaries, and values hoisted out of the loop."""

    per_vector: int
    fixed: int

    def total(self, rows: int, vectors: int) -> int:
        return rows * vectors + self.per_vector * vectors + self.fixed


def register_tile(
    isa: Isa, lanes: int, needs: RegisterNeeds, rows: int | None, columns: int | None
) -> tuple[int, int] | None:
    """Rows and vectors of the register tile: the most arithmetic for each load, ``r*v / (r + v)``, among those that
    fit the register file.

    ``rows``, ``columns``: trip counts where known; a tile that overhangs them is charged for its idle lanes.
    Returns None where not even one accumulator fits.
    """
    most_vectors = min(MOST_VECTORS[isa], ceil((columns or lanes * MOST_VECTORS[isa]) / lanes))
    most_rows = min(MOST_ACCUMULATORS[isa], rows or MOST_ACCUMULATORS[isa])
    best: tuple[float, int, int] | None = None
    for vectors in range(1, most_vectors + 1):
        for row_count in range(1, min(most_rows, MOST_ACCUMULATORS[isa] // vectors) + 1):
            if needs.total(row_count, vectors) > isa.registers:
                break
            reuse = row_count * vectors / (row_count + vectors)
            latency = min(1.0, row_count * vectors / ACCUMULATORS_FOR_LATENCY)
            score = reuse * latency * _use(rows, row_count) * _use(columns, vectors * lanes)
            best = max(best or (0.0, 0, 0), (score, row_count, vectors))
    return best and (best[1], best[2])


def _use(trips: int | None, size: int) -> float:
    """The part of the tiles' iterations that exist."""
    return 1.0 if trips is None else trips / (ceil(trips / size) * size)


@dataclass(frozen=True, slots=True)
class Panel:
    """The register tile along one dimension: ``count`` iterations, ``bytes`` of packed operands for one step of the
    reduction, ``trips`` where known."""

    count: int
    bytes: int
    trips: int | None


@dataclass(frozen=True, slots=True)
class CacheTiles:
    """Iterations of each tile dimension that are kept together."""

    reduction: int
    rows: int
    vector: int


def cache_tiles(
    machine: Machine, rows: Panel, vector: Panel, result_bytes: int, reduction: int | None
) -> CacheTiles:
    """Half of L2 for the block of row panels, half of this processor's share of the outermost cache for the block of
    vector panels, and the depth of both that moves the fewest lines, weighted by where they come from.

    ``result_bytes``: of one row of the register tile. ``reduction``: its trip count where known.
    """
    sizes = (_tiles(machine, rows, vector, depth) for depth in _depths(reduction))
    return min(sizes, key=lambda tiles: _cost_per_step(machine, rows, vector, result_bytes, tiles))


def _tiles(machine: Machine, rows: Panel, vector: Panel, depth: int) -> CacheTiles:
    # An operand without panels (nothing varies along the dimension) still takes some room: count one byte.
    row_panels = machine.level(2).share // 2 // (depth * max(rows.bytes, 1))
    vector_panels = machine.level(3).share // 2 // (depth * max(vector.bytes, 1))
    return CacheTiles(
        reduction=depth,
        rows=_balanced(row_panels * rows.count, rows.count, rows.trips),
        vector=_balanced(vector_panels * vector.count, vector.count, vector.trips),
    )


def _depths(reduction: int | None) -> list[int]:
    """Depths worth trying: equal parts of the reduction where its trip count is known."""
    if reduction is None:
        return list(range(32, 1025, 32))
    return sorted({ceil(reduction / parts) for parts in range(1, ceil(reduction / 32) + 1)} - {0})


def _cost_per_step(machine: Machine, rows: Panel, vector: Panel, result_bytes: int, tiles: CacheTiles) -> float:
    """Cycles for lines at each step of the reduction of one register tile.

    Results are fetched and stored once for a block: deeper blocks share that among more steps. But the deeper, the
    fewer row panels fit L2, for which a vector panel is fetched once; and panels that leave L1 come from L2 again.
    """
    line = machine.levels[0].line
    results = 2 * rows.count * ceil(result_bytes / line) * RESULT_LINE / tiles.reduction
    vector_panel = vector.bytes / line * OUTER_PANEL_LINE * rows.count / tiles.rows
    panels = rows.bytes + vector.bytes
    beyond = panels / line * INNER_PANEL_LINE if panels * tiles.reduction > machine.level(1).share else 0.0
    return results + vector_panel + beyond


def _balanced(most: int, unit: int, trips: int | None) -> int:
    """At most ``most`` iterations (but one ``unit``), a multiple of ``unit``, and all tiles about equally large."""
    most = max(most // unit, 1) * unit
    if trips is None:
        return most
    return ceil(ceil(trips / ceil(trips / most)) / unit) * unit
