"""Tile size selection for contractions, by an analytical model of the machine, without search.

Example: ``C[i][j] += A[i][k] * B[k][j]`` of doubles with AVX-512 gets a register tile of 8 rows x 3 vectors (8x24), and
cache tiles such as j/1032, k/512, i/128.

In: the instruction set, the machine, trip counts where known. Out: rows and vectors of the register tile, iterations of
the cache tiles. The register tile has as many independent accumulators as the register file holds, and loads as few
operands for them as possible. The cache tiles keep a block of each operand in half of its cache (Goto and van de Geijn,
"Anatomy of high-performance matrix multiplication", ACM TOMS 34(3), 2008; Low et al., "Analytical modeling is enough
for high-performance BLIS", ACM TOMS 43(2), 2016).

One thing differs from these papers. They keep the two panels in use in half of L1. That is too little depth where
vectors are long: at depth 96 a tile of 8 x 24 doubles spends a third of its time fetching results, at depth 512 hardly
any, and the panels still arrive from L2 in time. So the depth comes from a cost per cache line.

Every size is at least 1, and the tile of a dimension is a multiple of the register tile along it.
"""

from __future__ import annotations

from math import ceil

from memopt.ir.frozen import dataclass
from memopt.ir.plan import Isa
from memopt.machine.description import Machine

# Independent additions that keep the adders busy: latency (at most 4 cycles since Skylake and Zen 2) x 2 pipes.
ACCUMULATORS_FOR_LATENCY = 8

# Cycles per line: of results, from any level; of vector panels, from the outermost cache; of panels from L2, which the
# arithmetic hides for the most part.
RESULT_LINE = 10.0
OUTER_PANEL_LINE = 4.0
INNER_PANEL_LINE = 0.15

# Vector registers that the code generator (passes.contraction_code) sets aside: for accumulators, and for the vectors
# of one operand.
MOST_ACCUMULATORS = {Isa.SSE2: 12, Isa.AVX2: 12, Isa.AVX512: 24}
MOST_VECTORS = {Isa.SSE2: 2, Isa.AVX2: 2, Isa.AVX512: 3}


@dataclass(frozen=True, slots=True)
class RegisterNeeds:
    """Vector registers that one step of the reduction needs beside the accumulators.

    ``per_vector`` for each vector of the tile; ``fixed`` for broadcasts, temporaries and loop-invariant values.
    """

    per_vector: int
    fixed: int

    def total(self, rows: int, vectors: int) -> int:
        """All vector registers of a tile, accumulators included."""
        return rows * vectors + self.per_vector * vectors + self.fixed


def register_tile(
    isa: Isa, lanes: int, needs: RegisterNeeds, rows: int | None, columns: int | None
) -> tuple[int, int] | None:
    """(rows, vectors) of the register tile with the most arithmetic per load, ``r*v / (r + v)``, that fits the
    register file; None where not even one accumulator fits.

    ``rows``, ``columns``: trip counts where known. A tile is charged for the rows and lanes that overhang them, and for
    too few accumulators to hide the latency of additions.
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
    """Utilisation: the fraction of the iterations of all tiles that exist in the loop."""
    return 1.0 if trips is None else trips / (ceil(trips / size) * size)


@dataclass(frozen=True, slots=True)
class Panel:
    """A packed panel: the register tile along one dimension."""

    count: int  # iterations of the dimension
    bytes: int  # of packed operands for one step of the reduction
    trips: int | None  # trip count of the dimension, where known


@dataclass(frozen=True, slots=True)
class CacheTiles:
    """Cache tile sizes in iterations: ``reduction`` is the depth of a block, ``rows`` and ``vector`` its extents."""

    reduction: int
    rows: int
    vector: int


def cache_tiles(
    machine: Machine, rows: Panel, vector: Panel, result_bytes: int, reduction: int | None
) -> CacheTiles:
    """The cache tiles that cost the fewest cycles for cache lines.

    The block of row panels takes half of L2, the block of vector panels half of one processor's share of the outermost
    cache. The depth of both is the one whose lines, weighted by where they come from, cost least. ``result_bytes``: of
    one row of the register tile. ``reduction``: the trip count of the reduction, where known.
    """
    sizes = (_tiles(machine, rows, vector, depth) for depth in _depths(reduction))
    return min(sizes, key=lambda tiles: _cost_per_step(machine, rows, vector, result_bytes, tiles))


def _tiles(machine: Machine, rows: Panel, vector: Panel, depth: int) -> CacheTiles:
    # An operand that does not vary along the dimension has no panels; one byte avoids a division by zero.
    row_panels = machine.level(2).share // 2 // (depth * max(rows.bytes, 1))
    vector_panels = machine.level(3).share // 2 // (depth * max(vector.bytes, 1))
    return CacheTiles(
        reduction=depth,
        rows=_balanced(row_panels * rows.count, rows.count, rows.trips),
        vector=_balanced(vector_panels * vector.count, vector.count, vector.trips),
    )


def _depths(reduction: int | None) -> list[int]:
    """Candidate depths: equal parts of the reduction where its trip count is known, else multiples of 32."""
    if reduction is None:
        return list(range(32, 1025, 32))
    return sorted({ceil(reduction / parts) for parts in range(1, ceil(reduction / 32) + 1)} - {0})


def _cost_per_step(machine: Machine, rows: Panel, vector: Panel, result_bytes: int, tiles: CacheTiles) -> float:
    """Cycles for cache lines at one step of the reduction of one register tile.

    Results are fetched and stored once per block, so a deeper block spreads that over more steps. But a vector panel is
    fetched once per block of row panels, and the deeper the block, the fewer row panels fit L2. And panels that do not
    fit L1 come from L2 again.
    """
    line = machine.levels[0].line
    results = 2 * rows.count * ceil(result_bytes / line) * RESULT_LINE / tiles.reduction
    vector_panel = vector.bytes / line * OUTER_PANEL_LINE * rows.count / tiles.rows
    panels = rows.bytes + vector.bytes
    beyond = panels / line * INNER_PANEL_LINE if panels * tiles.reduction > machine.level(1).share else 0.0
    return results + vector_panel + beyond


def _balanced(most: int, unit: int, trips: int | None) -> int:
    """The tile size: a multiple of ``unit``, at most ``most`` but at least one unit, all tiles about equally large."""
    most = max(most // unit, 1) * unit
    if trips is None:
        return most
    return ceil(ceil(trips / ceil(trips / most)) / unit) * unit
