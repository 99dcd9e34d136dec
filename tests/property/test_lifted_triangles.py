"""Triangular nests against the real run: the region lifted in the middle of it must do what the process does.

Bytes that the original reads although it does not need them (a cell loaded before a loop that does not run) may be
missing from the region; bytes written, results, trip counts, guards and rejoin values may not differ.
"""

from __future__ import annotations

import pytest

from memopt.ir.scop import LIMIT, TRIPS
from tests.conftest import Build
from tests.support.effort import some, some_rows
from tests.support.lifting import lift_stopped, stopped_at_nest
from tests.support.replay import Replay, Watch, holds, live_values

SIZE = 11
LIFTED = {
    ("gcc", "-O1"): ("syrk", "syrk_rows", "trmm", "cholesky", "lu", "forward", "backward", "correlation", "blocked"),
    ("gcc", "-O2"): ("syrk", "syrk_rows", "trmm", "cholesky", "lu", "lu_right", "lu_flat", "forward", "backward",
                     "correlation", "blocked", "branches", "both_ways"),
    ("clang", "-O2"): ("syrk", "trmm", "backward", "correlation"),
}


@pytest.mark.parametrize(("compiler", "level", "nest"), some_rows(
    ((*b, n) for b, nests in LIFTED.items() for n in nests), 7))
@pytest.mark.parametrize("skip", some([0, 4], 1))
def test_a_lifted_triangle_is_what_the_process_does(
    build: Build, compiler: str, level: str, nest: str, skip: int
) -> None:
    program = build("triangles.c", f"-DNEST={nest}", compiler=compiler, level=level)
    with stopped_at_nest([str(program), str(SIZE)]) as (process, code, loop):
        for _ in range(skip if nest != "blocked" else 0):
            process.step()
            assert process.run_to(loop.header)
        assert loop.children, "not one of the loops that fill the arrays"
        region = lift_stopped(process, code, loop).region
        values = live_values(region, process)
        assert [str(g) for g in region.guards if not holds(g, values)] == []
        replay = Replay(region, values, process)
        replay.run()
        iterations = Watch(process, code, loop, region).run()
        trips = values[TRIPS]
        assert len(iterations) in (trips, trips + 1), "a while loop comes to its header once more"
        for number, iteration in enumerate(iterations[:trips]):
            assert iteration.written == replay.written.get(number, set())
            assert replay.read.get(number, set()) <= iteration.read | iteration.written
            assert iteration.values[TRIPS] == trips - number
            for rejoin in region.rejoin:
                expected = rejoin.value.evaluate(values | {LIMIT: number}) % (1 << 8 * rejoin.width)
                assert iteration.values[f"at {rejoin.location}"] == expected, str(rejoin)
            if number < trips - 1:
                assert [str(g) for g in region.guards if not holds(g, iteration.values)] == []
        assert {address: process.read(address, 1)[0] for address in replay.memory} == replay.memory
