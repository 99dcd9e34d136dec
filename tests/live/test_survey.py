"""``memopt profile --affine``: what hot nests touch, without a trace."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.measure.execution import memopt_command, run
from bench.workingsets import compared
from tests.conftest import Build
from tests.support.effort import some, some_rows
from tests.support.profiles import asked, record
from tests.support.waiting import PATIENCE


@pytest.mark.long
@pytest.mark.parametrize(("size", "tile", "again"), some_rows([(120, 0, 15000), (128, 16, 12000)], 1))
def test_derived_working_sets_are_those_of_the_trace(tmp_path: Path, size: int, tile: int, again: int) -> None:
    same, differ = compared(tmp_path, size, tile, again)
    assert differ == 0
    assert same >= (10 if tile == 0 else 14)


@pytest.mark.long
def test_tiles_that_are_cut_off_are_no_larger_than_they_are(tmp_path: Path) -> None:
    """The size is no multiple of the tile; the last iteration of the outermost loop ends in its middle."""
    assert compared(tmp_path, 123, 16, 12000, deepest=1) == (4, 0)


@pytest.mark.long
def test_the_program_runs_as_it_is(build: Build, tmp_path: Path) -> None:
    """Nothing is installed, and what is not understood is named."""
    program, path = str(build("set_up.c")), tmp_path / "p.db"
    native = run([program], PATIENCE)
    profiled = run([*memopt_command(), "profile", "--affine", "-o", str(path), "--", program], PATIENCE)
    assert (profiled.stdout, profiled.exit_code) == (native.stdout, native.exit_code)
    assert re.search(r"^memopt: product at 0x[0-9a-f]+: an affine nest$", profiled.stderr, re.MULTILINE)
    assert any("add(" in str(nest["text"]) for nest in asked(path, "SELECT text FROM nest WHERE text LIKE '%mul%'"))
    assert {row["function"] for row in asked(path, "derived-sets")} >= {"product"}


@pytest.mark.parametrize("options", some([("-O1",), ("-O2",), ("-O2", "-DROWS=TRIANGLE")], 1))
def test_a_loop_that_was_met_under_way_is_known_from_its_start(build: Build, tmp_path: Path,
                                                                options: tuple[str, ...]) -> None:
    path, size = tmp_path / "p.db", 1500
    program = str(build("one_product.c", *options[1:], level=options[0]))
    run([*memopt_command(), "profile", "--affine", "--quiet", "-o", str(path), "--", program, str(size)], PATIENCE)
    (outermost,) = asked(path, """SELECT max(d.iterations) AS all_of_them, n.trips AS left, max(d.lines) AS lines
        FROM derived_set d JOIN nest n ON n.id = d.nest WHERE d.depth = 1 GROUP BY d.nest
        ORDER BY max(d.lines) DESC LIMIT 1""")
    assert int(str(outermost["all_of_them"])) in ((size - 1, size) if "TRIANGLE" in options[-1] else (size,))  # peeled
    assert 0 < int(str(outermost["left"])) < size
    arrays = 2.5 if "TRIANGLE" in options[-1] else 3
    assert float(str(outermost["lines"])) == pytest.approx(8 * arrays * size * size, rel=0.01)


def test_it_cannot_be_asked_for_with_counting(tmp_path: Path) -> None:
    refused = run([*memopt_command(), "profile", "--affine", "--exact", "-o", str(tmp_path / "p.db"), "--", "true"],
                  PATIENCE)
    assert refused.exit_code == 2
    assert refused.stderr.count("\n") == 1


def test_a_profile_without_it_has_no_nests(build: Build, tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    record((str(build("watched_dependences.c", level="-O1")),), path)
    assert asked(path, "derived-sets") == []
