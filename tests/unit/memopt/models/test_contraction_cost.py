"""The model need not be right, but it must rank nests the way machines do."""

from __future__ import annotations

import re
from dataclasses import replace

from memopt.ir.plan import Isa
from memopt.ir.scop import ElementType
from memopt.models.contraction_cost import estimate, operations, original_cycles, stride
from passes.contraction_schedule.base import trip_counts
from tests.support.machines import ZEN5
from tests.support.plans import plan
from tests.support.products import Layout, product


def _cycles(order: str, n: int, layout: Layout | None = None) -> float:
    """Cycles for one iteration."""
    sizes = dict.fromkeys("ijk", n)
    scop = product(order, sizes, layouts={"b": layout or Layout()}).scop
    return original_cycles(scop, scop.statements[0], sizes, ZEN5) / n**3


def test_strides_are_bytes() -> None:
    scop = product("ijk", {"i": 100, "j": 100, "k": 100}, ElementType.F32).scop
    (statement,) = scop.statements
    assert [stride(scop, statement.reads[2], d) for d in "ijk"] == [0, 4, 400]
    assert operations(statement.expression) == 2


def test_loop_order_matters_once_the_arrays_leave_the_caches() -> None:
    assert _cycles("ikj", 2048) < _cycles("ijk", 2048) / 3
    assert _cycles("ijk", 2048) < _cycles("jki", 2048) / 1.5
    assert _cycles("jki", 64) < 2 * _cycles("ikj", 64)


def test_larger_arrays_cost_more() -> None:
    assert _cycles("ijk", 64) < _cycles("ijk", 1000) < _cycles("ijk", 4000)


def test_strides_that_fall_on_few_sets_cost_more() -> None:
    assert _cycles("ijk", 1024) > 2 * _cycles("ijk", 1000)
    assert _cycles("ijk", 1024) > 2 * _cycles("ijk", 1024, Layout(padding=8))


def test_estimate_is_said_in_the_users_units() -> None:
    region = product("ijk", {"i": 2048, "j": 2048, "k": 2048})
    (statement,) = region.scop.statements
    made = plan(region, ZEN5, Isa.AVX512)
    found = estimate(region.scop, statement, made, trip_counts(statement, 2048, {}), ZEN5)
    assert re.fullmatch(r"estimated \d+ s -> \d+ ms \(arithmetic \d+%, traffic \d+%, packing \d+%\)", str(found))
    assert abs(found.plan - found.compute - found.traffic - found.packing) < 1
    assert found.gain > 15


def test_packing_pays_and_so_do_deep_blocks() -> None:
    region = product("ijk", {"i": 2048, "j": 2048, "k": 2048})
    (statement,) = region.scop.statements
    trips = trip_counts(statement, 2048, {})
    made = plan(region, ZEN5, Isa.AVX512)
    shallow = replace(made, loops=tuple(replace(t, size=16) if t.dimension == "k" else t for t in made.loops))
    packed, unpacked, thin = (
        estimate(region.scop, statement, p, trips, ZEN5) for p in (made, replace(made, packs=()), shallow)
    )
    assert packed.packing > 0
    assert unpacked.packing == 0
    assert packed.plan < unpacked.plan / 2
    assert packed.plan < thin.plan
