"""Programs on which memopt was wrong once, and further ones of their kinds: right, with new code in place.

Here each is run once, in its first build: ``python -m tests.support.faults --runs 20`` runs all builds, and what
depends on time twenty times.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from memopt.ir.reasons import Reason
from tests.support.effort import some
from tests.support.faults.known import KNOWN
from tests.support.faults.running import SOURCES, Outcome, built, judged
from tests.support.faults.table import FAULTS, Fault, each, label
from tests.support.faults.ways import HIGHEST
from tests.support.tools import need

RUNS = int(os.environ.get("MEMOPT_FAULT_RUNS", "1"))
PROGRAMS = tuple({fault.name: fault for fault in reversed(tuple(each()))}.values())[::-1]

pytestmark = [pytest.mark.whole, pytest.mark.timeout(RUNS * HIGHEST + 120)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults")


def test_every_program_is_run() -> None:
    plug_ins = {made.plug_in for fault in FAULTS for made in fault.made}
    assert {path.stem for path in SOURCES.glob("*.c")} == {fault.name for fault in FAULTS} | plug_ins - {""}
    assert {fault.name for fault in FAULTS} >= KNOWN


def test_the_readme_says_what_is_outside_the_promise() -> None:
    text = " ".join((SOURCES.parents[2] / "README.md").read_text().partition("Outside the promise")[2].split())
    outside, _, _ = text.partition("Left alone")
    assert [f.name for f in FAULTS if f.edge and (not f.outside or f.outside not in outside)] == []


def test_a_right_answer_of_the_original_is_no_pass() -> None:
    fault = Fault("some", refusals=frozenset({Reason.THREADS}))
    assert Outcome("", True, (), 1.0).passes(fault)
    assert not Outcome("", False, (), 1.0).passes(fault)
    assert not Outcome("", False, (Reason.NO_PLAN.value,), 1.0).passes(fault)
    assert Outcome("", False, (Reason.THREADS.value,), 1.0).passes(fault)
    assert not Outcome("SIGSEGV", True, (), 1.0).passes(fault)


@pytest.mark.parametrize("fault", some(PROGRAMS, 3, ids=map(label, PROGRAMS)))
def test_right_with_new_code_in_place(fault: Fault, folder: Path) -> None:
    need(fault.made[0].compiler, *(("taskset",) if fault.cpus[0] else ()))
    command = built(fault, folder)
    outcomes = [judged(fault, command) for _ in range(RUNS if fault.timed else 1)]
    passed = all(outcome.passes(fault) for outcome in outcomes)
    if not passed and fault.name in KNOWN:
        pytest.xfail("known")
    assert passed, outcomes
