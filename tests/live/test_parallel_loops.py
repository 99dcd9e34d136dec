"""Which loops are parallel, by ``memopt query parallel-candidates``, beside what their source says by hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conftest import Build
from tests.support.effort import some, some_rows
from tests.support.parallel_nests import WAYS, compared, drawn
from tests.support.profiles import asked, record

PARALLEL, COPIES, SUM, SERIAL = "parallel", "parallel with copies", "parallel with a reduction", "serial"
SUM_AND_COPIES = "parallel with a reduction and copies"
SPILLED = (PARALLEL, COPIES)  # a spilled register needs a copy, as each thread has one of its own

# By function and depth: what the loop is by hand, as the comments in the source say.
BY_HAND: dict[tuple[str, int], tuple[str, ...]] = {
    ("residual", 1): SPILLED, ("residual", 2): SPILLED, ("residual", 3): (PARALLEL,),
    ("spilled", 1): SPILLED, ("spilled", 2): SPILLED, ("spilled", 3): (PARALLEL,),
    ("scratch", 1): (COPIES,), ("scratch", 2): (PARALLEL,),
    ("in_register", 1): (SUM,), ("in_memory", 1): (SUM,), ("greatest", 1): (SUM,), ("histogram", 1): (SUM,),
    ("at_each_level", 1): (SUM, SUM_AND_COPIES), ("at_each_level", 2): (SUM,),
    ("of_rows", 1): (SUM,), ("of_rows", 2): SPILLED, ("of_rows", 3): (SUM,),
    ("prefix", 1): (SERIAL,), ("prefix_in_memory", 1): (SERIAL,), ("recurrence", 1): (SERIAL,),
    ("horner", 1): (SERIAL,),
    ("wavefront", 1): (SERIAL,), ("wavefront", 2): (SERIAL,), ("chase", 1): (SERIAL,), ("compact", 1): (SERIAL,),
    ("search", 1): (SERIAL,), ("forwarded", 1): (SERIAL,), ("where", 1): (SERIAL,), ("iterated", 1): (SERIAL,),
    ("shifted", 1): (SERIAL,), ("through", 1): (PARALLEL,), ("through", 2): (PARALLEL,), ("smooth", 1): (PARALLEL,),
    ("row_of", 1): (PARALLEL,), ("calls", 1): SPILLED, ("summed", 1): (SUM, SUM_AND_COPIES),
}
# Vectors that step in turns, and a maximum of several lanes, are called serial.
SHORT = {("clang", "-O2"): {("through", 1)}, ("clang", "-O3"): {("through", 1), ("greatest", 1)}}
ROWS = [(compiler, level) for level in ("-O2", "-O1", "-O3") for compiler in ("gcc", "clang")]


def verdicts(program: str, path: Path) -> dict[tuple[str, int], set[str]]:
    """The verdicts on the loops of ``program``: of several loops that the compiler made of one, all of them."""
    found: dict[tuple[str, int], set[str]] = {}
    for row in asked(path, "parallel-candidates"):
        if row["image"] == os.path.realpath(program):
            key = str(row["function"]).partition(".")[0], int(str(row["depth"]))
            verdict = str(row["through_memory"])
            refused = verdict.startswith(("serial, distance ", "unknown: "))
            found.setdefault(key, set()).add(SERIAL if refused else verdict)
    return found


@pytest.mark.parametrize(("compiler", "level"), some_rows(ROWS, 1))
def test_loops_are_called_what_they_are_by_hand(build: Build, tmp_path: Path, compiler: str, level: str) -> None:
    program, path = str(build("parallel_loops.c", compiler=compiler, level=level)), tmp_path / "p.db"
    record((program,), path, "--dependences")
    found = verdicts(program, path)
    assert {function for function, _ in found} >= {function for function, _ in BY_HAND}
    assert {key: (seen, BY_HAND[key]) for key, seen in found.items()
            if key in BY_HAND.keys() - SHORT.get((compiler, level), set()) and not seen <= set(BY_HAND[key])} == {}


@pytest.mark.parametrize("number", some(range(10), 1))
def test_no_loop_that_carries_a_dependence_is_called_parallel(number: int) -> None:
    """``python -m tests.support.parallel_nests`` tries 2000 nests."""
    wrong, counts = compared([drawn(n) for n in range(40 * number, 40 * number + 40)], WAYS[number % len(WAYS)])
    assert wrong == []
    assert counts["parallel called parallel"] > 10
    assert counts["sum called parallel"] > 0
