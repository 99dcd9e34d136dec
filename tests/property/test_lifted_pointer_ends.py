"""Inner loops that end where two moving pointers meet, against the real run: the region lifted in the middle of it does
what the process does.

Example: ``for (; row != last; row += n, end += n + 1) for (p = row; p != end; p++) *p += x;``. The trip count of the
inner loop is ``(end - row) / 8`` of the current iteration. All iterations are compared: cells, trip counts, guards.
"""

from __future__ import annotations

import pytest

from memopt.ir.scop import LIMIT, TRIPS
from tests.conftest import Build
from tests.support.effort import some_rows
from tests.support.lifting import lift_stopped, stopped_at_nest
from tests.support.replay import Replay, Watch, holds, live_values

SIZE = 11
NESTS = ("lower", "upper", "lower_both", "upper_both", "strict", "downward", "ordered", "pairs", "before", "behind")
# (nest, element, whether the size is a constant). Refused, or guarded by cells that the loop changes, for other reasons
# than their ends: remainders of vector loops, tests for overlap that depend on the counter, addresses from memory.
OTHERWISE = {
    ("gcc", "-O3"): {
        ("lower", "double", True), ("lower", "double", False), ("lower_both", "double", False),
        ("upper", "double", False), ("upper", "float", False), ("behind", "double", False),
        ("before", "float", True), ("before", "float", False),
    },
    ("clang", "-O2"): {
        *((n, r, False) for n in ("lower", "lower_both", "upper", "upper_both") for r in ("double", "float")),
        *((n, r, True) for n in ("downward", "pairs") for r in ("double", "float")), ("strict", "float", False),
        *(("ordered", r, fixed) for r in ("double", "float") for fixed in (True, False)),
    },
}
BUILDS = [(c, o, n, r, fixed) for c, o in (("gcc", "-O2"), ("gcc", "-O1"), ("gcc", "-O3"), ("clang", "-O2"))
          for n in NESTS for r in ("double", "float") for fixed in (True, False)
          if (n, r, fixed) not in OTHERWISE.get((c, o), ())]


@pytest.mark.parametrize(("compiler", "level", "nest", "real", "fixed"), some_rows(BUILDS, 8, most=64))
def test_a_lifted_nest_is_what_the_process_does(
    build: Build, compiler: str, level: str, nest: str, real: str, fixed: bool
) -> None:
    size = SIZE + (nest == "pairs")
    program = build("rank_k.c", f"-DNEST={nest}", f"-DREAL={real}", *([f"-DSIZE={size}"] if fixed else []),
                    compiler=compiler, level=level)
    with stopped_at_nest([str(program), "2", str(size)], among_calls=True) as (process, code, loop):
        for _ in range(3):
            process.step()
            assert process.run_to(loop.header)
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
