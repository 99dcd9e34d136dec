"""``memopt snapshot`` keeps a nest and says what it holds; ``exec --on-mismatch`` keeps one that went wrong."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.measure.execution import memopt_command
from memopt.ir.isa import Isa
from memopt.session.snapshotting.replaying import Asked, replay
from memopt.snapshots.file import read
from memopt.snapshots.form import Snapshot
from tests.conftest import Build
from tests.support.effort import some
from tests.support.waiting import PATIENCE

FOREVER = "10000000"  # repetitions: the program is ended once the snapshot is there
SECRET = "a-secret-of-the-user"
WRONG = (sys.executable, "-m", "tests.support.wrong_generator")
ROOT = Path(__file__).resolve().parents[2]


def run(words: Sequence[str | Path], snapshot: Path) -> str:
    """Run memopt until it says that ``snapshot`` is written, or the program ends; what it wrote to standard error."""
    told = snapshot.with_suffix(".err")
    with told.open("w") as file, subprocess.Popen([*map(str, words)], stdout=subprocess.DEVNULL, stderr=file, cwd=ROOT,
                                                  env={**os.environ, "TOKEN": SECRET}) as running:
        end = time.monotonic() + PATIENCE
        while running.poll() is None and "snapshot of" not in told.read_text() and time.monotonic() < end:
            time.sleep(0.02)
        running.terminate()
    return told.read_text()


def agree(snapshot: Snapshot) -> None:
    lines = list(replay(snapshot, Asked(seconds=5.0)))
    assert all(agreed for agreed, _ in lines), lines
    assert any("identical" in line for _, line in lines)


@pytest.mark.parametrize("case", some(["product", "stencil", "triangle"], 1))
def test_a_nest_is_kept_and_runs_again(build: Build, tmp_path: Path, case: str) -> None:
    path = tmp_path / "nest.snapshot"
    told = run([*memopt_command(), "snapshot", "--loop", case, "-o", path, "--", build("kept_nests.c"), case, FOREVER,
                SECRET], path)
    assert f"snapshot of {case}: {path}, " in told
    assert "it holds memory of the program" in told
    snapshot = read(str(path))
    assert snapshot.nest.function == case
    assert snapshot.nest.trips > 2
    assert snapshot.size < 1 << 20
    assert not any("/" in mapping.name for mapping in snapshot.ranges)
    assert not any(word.encode() in p.content for p in snapshot.pages
                   for word in (SECRET, str(tmp_path), "kept_nests.c", FOREVER, "PATH="))
    agree(snapshot)


@pytest.mark.long
def test_a_nest_with_library_functions_runs_again(build: Build, tmp_path: Path) -> None:
    """Their code and tables are touched, and their names are known, without the library."""
    path = tmp_path / "nest.snapshot"
    program = build("functions.c", "-DFUNCTION(x)=exp(-0.125*(x))", "-fno-builtin", "-Wl,--no-as-needed", "-lm")
    run([*memopt_command(), "snapshot", "-o", path, "--", program, "61", FOREVER], path)
    snapshot = read(str(path))
    assert list(snapshot.symbols.slots.values()) == ["exp"]
    assert snapshot.symbols.exports == ("libm.so.6:exp",)
    library = [m for m in snapshot.ranges if m.name == "libm.so.6"]
    assert any(library[0].start <= p.start < library[-1].end for p in snapshot.pages)
    agree(snapshot)


@pytest.mark.long
def test_a_nest_above_the_limit_is_not_kept(build: Build, tmp_path: Path) -> None:
    command = [*memopt_command(), "snapshot", "--limit", "1", "-o", tmp_path / "nest.snapshot", "--",
               build("one_product.c"), "1500"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        first = running.stderr.readline()
        running.terminate()
        assert running.wait() != 0
        last = running.stderr.readlines()[-1]
    why = r"product: the nest touches (\d+) MiB of memory, and the limit is 1; --limit \1 permits it\n"
    assert re.fullmatch(f"memopt: no snapshot of {why}", first)
    assert re.fullmatch(f"memopt: no snapshot was written: {why}", last)
    assert os.listdir(tmp_path) == []


def test_a_program_without_the_nest(build: Build, tmp_path: Path) -> None:
    done = subprocess.run([*memopt_command(), "snapshot", "--loop", "nobody", "-o", tmp_path / "nest.snapshot", "--",
                           build("kept_nests.c"), "product", "100"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "memopt: no snapshot was written: " in done.stderr
    assert done.stdout
    assert os.listdir(tmp_path) == []


def test_a_mismatch_is_kept(build: Build, tmp_path: Path) -> None:
    path = tmp_path / "nest.snapshot"
    told = run([*WRONG, "exec", "--on-mismatch", path, "--", build("kept_nests.c"), "product", FOREVER], path)
    assert "whose new code gave other results in a trial" in told
    snapshot = read(str(path))
    assert snapshot.why.startswith("mismatch: at least ")
    assert snapshot.plans
    agree(snapshot)
    again = subprocess.run([*WRONG, "replay", path], capture_output=True, text=True, cwd=ROOT)
    assert again.returncode == 1
    assert "different: at least" in again.stdout


@pytest.mark.long
def test_a_kept_plan_can_be_tried(build: Build, tmp_path: Path) -> None:
    path, plan = tmp_path / "nest.snapshot", tmp_path / "plan"
    run([*memopt_command(), "snapshot", "--isa", "sse2", "-o", path, "--", build("kept_nests.c"), "product", FOREVER],
        path)
    for text in read(str(path)).plans:
        plan.write_text(text)
        done = subprocess.run([*memopt_command(), "replay", "--plan", plan, path], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert f"{Isa.SSE2.value}: identical" in done.stdout
    plan.write_text("no plan")
    done = subprocess.run([*memopt_command(), "replay", "--plan", plan, path], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith(f"memopt: {path}: the plan cannot be read: ")
    assert done.stderr.count("\n") == 1
