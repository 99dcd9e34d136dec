from __future__ import annotations

from dataclasses import replace
from math import ceil

import pytest

from memopt.ir.plan import Isa
from memopt.models.tile_sizes import Panel, RegisterNeeds, cache_tiles, register_tile
from tests.support.machines import HASWELL, SMALL, ZEN5

_PRODUCT = RegisterNeeds(per_vector=1, fixed=2)


def test_register_tiles_of_a_product() -> None:
    assert register_tile(Isa.AVX512, 8, _PRODUCT, None, None) == (8, 3)
    assert register_tile(Isa.AVX2, 4, _PRODUCT, None, None) == (6, 2)
    assert register_tile(Isa.SSE2, 2, _PRODUCT, None, None) == (6, 2)


@pytest.mark.parametrize("isa", list(Isa))
@pytest.mark.parametrize("needs", [_PRODUCT, RegisterNeeds(2, 4), RegisterNeeds(3, 8), RegisterNeeds(0, 1)])
@pytest.mark.parametrize("trips", [(None, None), (1, 1), (2, 5), (7, 100), (None, 3), (13, None)])
def test_register_tiles_fit(isa: Isa, needs: RegisterNeeds, trips: tuple[int | None, int | None]) -> None:
    found = register_tile(isa, isa.vector_bytes // 8, needs, *trips)
    assert found is not None
    rows, vectors = found
    assert rows >= 1
    assert vectors >= 1
    assert needs.total(rows, vectors) <= isa.registers


def test_short_trips_shrink_the_tile() -> None:
    assert register_tile(Isa.AVX512, 8, _PRODUCT, 2, 8) == (2, 1)
    assert register_tile(Isa.AVX2, 4, _PRODUCT, 1, 1) == (1, 1)
    found = register_tile(Isa.AVX512, 8, _PRODUCT, None, 8)
    assert found is not None
    assert found[1] == 1
    assert found[0] > 8


def test_no_register_left() -> None:
    assert register_tile(Isa.SSE2, 2, RegisterNeeds(1, 16), None, None) is None


@pytest.mark.parametrize("machine", [ZEN5, HASWELL, SMALL])
@pytest.mark.parametrize("trips", [1, 2, 5, 97, 256, 1009, 2048, 4000, 100_000, None])
def test_blocks_fit_their_caches(machine: object, trips: int | None) -> None:
    assert isinstance(machine, type(ZEN5))
    rows, vector = Panel(8, 64, trips), Panel(24, 192, trips)
    tiles = cache_tiles(machine, rows, vector, 192, trips)
    assert tiles.rows % rows.count == 0
    assert tiles.vector % vector.count == 0
    assert min(tiles.reduction, tiles.rows, tiles.vector) >= 1
    row_block = tiles.rows // 8 * 64 * tiles.reduction
    assert row_block <= machine.level(2).share // 2 or tiles.rows == 8
    vector_block = tiles.vector // 24 * 192 * tiles.reduction
    assert vector_block <= machine.level(3).share // 2 or tiles.vector == 24
    if trips is not None:
        assert tiles.reduction <= trips
        assert tiles.rows <= ceil(trips / 8) * 8
        assert tiles.vector <= ceil(trips / 24) * 24


def test_blocks_of_known_loops_are_even() -> None:
    tiles = cache_tiles(ZEN5, Panel(8, 64, 2048), Panel(24, 192, 2048), 192, 2048)
    blocks = ceil(2048 / tiles.reduction)
    assert blocks * tiles.reduction - 2048 < blocks


def test_a_larger_second_level_holds_larger_blocks() -> None:
    panels = Panel(8, 64, None), Panel(24, 192, None)
    large = replace(ZEN5, levels=(ZEN5.levels[0], replace(ZEN5.levels[1], size=4 << 20), ZEN5.levels[2]))
    before, after = (cache_tiles(m, *panels, 192, None) for m in (ZEN5, large))
    assert before.rows * before.reduction < after.rows * after.reduction


def test_operands_that_do_not_vary_along_a_dimension() -> None:
    tiles = cache_tiles(ZEN5, Panel(8, 0, None), Panel(24, 192, 100), 192, 100)
    assert tiles.rows >= 8
    assert tiles.reduction <= 100
