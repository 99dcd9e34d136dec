"""Regions against the real run: the process is stepped through its loop, instruction by instruction.

What the SCoP says is computed on a copy of memory; then the process itself runs on. Bytes read and written in each
outer iteration, the bits of every result, the trip count, every guard and every rejoin value must agree.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from memopt.ir.scop import LIMIT, TRIPS
from tests.conftest import Build
from tests.support.effort import some, some_rows
from tests.support.lifting import lift_stopped, stopped_at_nest
from tests.support.replay import Replay, Watch, holds, live_values

_COMPILERS = (("gcc", "-O2"), ("gcc", "-O1"), ("gcc", "-O3"), ("clang", "-O2"))
_SOURCES = ("gemm_ijk.c", "gemm_ikj.c", "gemm_jki.c", "gemm_static.c")


@pytest.mark.parametrize(("compiler", "level"), some_rows(_COMPILERS, 2))
@pytest.mark.parametrize("real", some(["double", "float"], 1))
@pytest.mark.parametrize("source", _SOURCES)
def test_a_lifted_product_is_what_the_process_does(
    build: Build, source: str, real: str, compiler: str, level: str
) -> None:
    source_of_chance = random.Random(f"{source} {real} {compiler} {level}")
    static = "static" in source
    smallest = 24 if static else 5  # loops known to be shorter are unrolled altogether
    size = source_of_chance.randrange(smallest, smallest + 6)
    flags = (f"-DN={size}",) if static else ()
    program = build(source, f"-DREAL={real}", *flags, compiler=compiler, level=level)
    check([str(program)] + ([] if flags else [str(size)]), size - source_of_chance.randrange(2, 5))


@pytest.mark.parametrize("level", some(["-O2", "-O1"], 1))
@pytest.mark.parametrize("mode", some(["read-only", "rows", "freed", "loads", "integers", "ways", "bytes"], 2))
def test_what_a_branch_passes_over_is_not_accessed(build: Build, mode: str, level: str) -> None:
    check([str(build("passed_over.c", "-DN=16", level=level)), mode, "once"], 3)


def check(argv: list[str], skip: int = 0, exactly_read: bool = True) -> None:
    """``skip`` outer iterations run before anything is captured; ``exactly_read``: the program reads nothing that it
    does not use."""
    with stopped_at_nest(argv) as (process, code, loop):
        for _ in range(skip):
            process.step()
            assert process.run_to(loop.header)
        region = lift_stopped(process, code, loop).region
        values = live_values(region, process)
        replay = Replay(region, values, process)
        replay.run()
        iterations = Watch(process, code, loop, region).run()
        trips = values[TRIPS]
        assert trips >= 2
        assert len(iterations) in (trips, trips + 1), "a while loop comes to its header once more"
        for number, iteration in enumerate(iterations[:trips]):
            assert iteration.written == replay.written[number]
            touched = replay.read[number] | replay.written[number]
            assert touched <= iteration.read | iteration.written
            if exactly_read:
                assert iteration.read | iteration.written == touched
            assert iteration.values[TRIPS] == trips - number
            for rejoin in region.rejoin:
                expected = rejoin.value.evaluate(values | {LIMIT: number}) % (1 << 8 * rejoin.width)
                assert iteration.values[f"at {rejoin.location}"] == expected, str(rejoin)
            if number < trips - 1:
                assert [str(g) for g in region.guards if not holds(g, iteration.values)] == []
        stored = {address: process.read(address, 1)[0] for address in replay.memory}
        assert stored == replay.memory


def test_the_check_sees_a_wrong_subscript(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    program: Path = build("gemm_ijk.c", "-DREAL=double", compiler="gcc", level="-O2")
    original = Replay._address

    def shifted(self: Replay, *args: object) -> int:
        return original(self, *args) + 8  # type: ignore[arg-type]

    monkeypatch.setattr(Replay, "_address", shifted)
    with pytest.raises(AssertionError):
        check([str(program), "6"])
