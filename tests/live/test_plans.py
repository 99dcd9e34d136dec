"""The plan cache across runs of real programs: the second run takes the plan of the first, and nothing else changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.measure.execution import run_under_memopt
from memopt.ir.reasons import Reason
from memopt.plans.entries import Entry, Stored, StoredPlan, parse, text
from tests.conftest import Build
from tests.support.effort import some
from tests.support.told import EXIT_CODE, Told
from tests.support.waiting import PATIENCE

Cached = Callable[..., Told]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    folder = tmp_path / "cache"
    folder.mkdir(0o700)
    return folder


@pytest.fixture
def started(program: Path, cache: Path, tmp_path: Path) -> Cached:
    """Starts the program under memopt with this cache, as the run ``name``."""
    def start(name: str, *options: str, path: Path = program) -> Told:
        folder = tmp_path / name
        folder.mkdir()
        return Told(path, folder, *options, "--json", str(folder / "json"),
                    environment={"XDG_CACHE_HOME": str(cache), "HOME": str(tmp_path)})

    return start


def nest(told: Told, expected: str, folder: Path) -> dict[str, Any]:
    """The product's nest in the report of a run whose output must be that of a native one."""
    assert told.finish() == (EXIT_CODE, expected)
    loops = [x for x in json.loads((folder / "json").read_text())["loops"] if x["outcome"] == "replaced"]
    assert len(loops) == 1
    assert loops[0]["runs"] > 0
    return dict(loops[0])


def files(cache: Path) -> list[Path]:
    return sorted((cache / "memopt" / "plans" / "v1").glob("*"))


def contents(cache: Path) -> Stored:
    path, = files(cache)
    return parse(path.read_text())


def rewritten(cache: Path, change: Callable[[Entry], Entry]) -> None:
    path, = files(cache)
    found = parse(path.read_text())
    path.write_text(text(Stored(found.origin, found.file, tuple(map(change, found.entries)))))


def first_run(started: Cached, expected: str, tmp_path: Path) -> None:
    with started("first") as told:
        told.await_replaced()
        assert not nest(told, expected, tmp_path / "first")["planned_before"]


@pytest.mark.check
def test_the_second_run_takes_the_plan_of_the_first(started: Cached, expected: str, cache: Path, tmp_path: Path
                                                    ) -> None:
    first_run(started, expected, tmp_path)
    before = contents(cache).entries
    assert any(isinstance(e.what, StoredPlan) for e in before)
    assert str(tmp_path) not in files(cache)[0].read_text()
    with started("second", "--verbose") as told:
        told.await_replaced()
        found = nest(told, expected, tmp_path / "second")
        assert found["planned_before"]
        assert any("by the plan of an earlier run" in line for line in told.words)
        assert not any("validate" in line for line in told.words)  # the code is that of the first run's trial
    after = next(e.what for e in contents(cache).entries if isinstance(e.what, StoredPlan))
    assert after.used == 2


@pytest.mark.long
def test_without_the_cache_nothing_is_read_or_written(started: Cached, expected: str, cache: Path, tmp_path: Path
                                                      ) -> None:
    first_run(started, expected, tmp_path)
    before = files(cache)[0].read_text()
    with started("without", "--no-cache") as told:
        told.await_replaced()
        assert not nest(told, expected, tmp_path / "without")["planned_before"]
    assert files(cache)[0].read_text() == before


@pytest.mark.long
def test_code_that_is_not_that_of_the_trial_is_tried(started: Cached, expected: str, cache: Path, tmp_path: Path
                                                     ) -> None:
    first_run(started, expected, tmp_path)
    rewritten(cache, lambda e: replace(e, what=replace(e.what, made="0" * 64)))
    with started("second", "--verbose") as told:
        told.await_replaced()
        assert nest(told, expected, tmp_path / "second")["planned_before"]
        assert any("validate" in line for line in told.words)


@pytest.mark.long
@pytest.mark.parametrize("plan", ["nest\nplan avx2 S0: j/8", "loops sse2", "nest\n" + "(" * 5000],
                         ids=["another nest", "no nest", "deep"])
def test_a_plan_that_is_none_for_the_nest_costs_only_the_long_way(plan: str, started: Cached, expected: str,
                                                                  cache: Path, tmp_path: Path) -> None:
    first_run(started, expected, tmp_path)
    rewritten(cache, lambda e: replace(e, what=replace(e.what, plan=plan)))
    with started("second") as told:
        told.await_replaced()
        assert not nest(told, expected, tmp_path / "second")["planned_before"]
        assert "Traceback" not in told.stderr
    assert next(e.what for e in contents(cache).entries if isinstance(e.what, StoredPlan)).lost


@pytest.mark.parametrize("damage", some(["corrupt", "a link", "foreign"], 1))
def test_an_odd_file_is_one_line(damage: str, started: Cached, expected: str, cache: Path, tmp_path: Path) -> None:
    first_run(started, expected, tmp_path)
    path, = files(cache)
    whole = path.read_text()
    if damage == "a link":
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    elif damage == "foreign":
        path.chmod(0o666)
    else:
        path.write_text(whole[:len(whole) // 2])
    with started("second") as told:
        told.await_replaced()
        assert not nest(told, expected, tmp_path / "second")["planned_before"]
        assert sum("the plan cache" in line and "is ignored" in line for line in told.words) == 1
        assert "Traceback" not in told.stderr
    assert any(isinstance(e.what, StoredPlan) for e in contents(cache).entries)
    if damage == "a link":
        assert (tmp_path / "elsewhere").read_text() == whole


@pytest.mark.long
def test_another_program_does_not_take_the_plan(started: Cached, build: Build, expected: str, cache: Path,
                                                tmp_path: Path) -> None:
    """The same source, built otherwise."""
    first_run(started, expected, tmp_path)
    with started("second", path=build("until_told.c", "-fno-inline")) as told:
        told.await_replaced()
        assert not nest(told, expected, tmp_path / "second")["planned_before"]
    assert len(files(cache)) == 2


@pytest.mark.long
def test_two_runs_at_once_leave_one_whole_file(started: Cached, expected: str, cache: Path, tmp_path: Path) -> None:
    with started("one") as one, started("two") as two:
        one.await_replaced()
        two.await_replaced()
        assert nest(one, expected, tmp_path / "one")
        assert nest(two, expected, tmp_path / "two")
    assert any(isinstance(e.what, StoredPlan) for e in contents(cache).entries)


@pytest.mark.long
def test_a_folder_that_cannot_be_used_is_as_none(started: Cached, expected: str, cache: Path, tmp_path: Path) -> None:
    (cache / "memopt").mkdir(0o700)
    (cache / "memopt" / "plans").write_text("")
    with started("first") as told:
        told.await_replaced()
        assert nest(told, expected, tmp_path / "first")
        assert "cache" not in "".join(told.words)


@pytest.mark.long
def test_a_refusal_by_the_code_is_gone_by(build: Build, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second run goes by what the first one, and another one before it, have seen: it lifts nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    program = (str(build("index_array.c")), "1100")
    one = run_under_memopt(program, PATIENCE, cache=True)
    rewritten(cache, lambda e: replace(e, what=replace(e.what, seen=2)))
    two = run_under_memopt(program, PATIENCE, cache=True)
    assert one.stdout == two.stdout
    for execution, lifted in ((one, True), (two, False)):
        assert execution.report is not None
        hot = max(execution.report["loops"], key=lambda loop: float(loop["share"]))
        assert hot["reason"] == Reason.DATA_DEPENDENT_ADDRESS.value
        assert ("lift" in execution.report["stages"]) == lifted
