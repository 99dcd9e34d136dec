"""Nests that call functions: one of the program's own, those of the C library that copy and fill memory, those of
the mathematical library."""

from __future__ import annotations

import pytest

from bench.measure.execution import run, run_under_memopt
from tests.conftest import Build
from tests.support.effort import some_rows
from tests.support.waiting import PATIENCE

REPETITIONS = 2400  # of functions.c


@pytest.mark.parametrize(("compiler", "level"), some_rows([("gcc", "-O1"), ("gcc", "-O2"), ("clang", "-O2")], 1))
def test_a_nest_with_calls_is_replaced(build: Build, compiler: str, level: str) -> None:
    command = (str(build("copied_rows.c", compiler=compiler, level=level)), "900", "150")
    native, trial = run(command, PATIENCE), run_under_memopt(command, PATIENCE)
    assert trial.same_result(native), trial.stderr
    assert trial.replaced, trial.stderr


def test_a_function_that_copies_in_another_library_is_not_taken_for_the_c_librarys(build: Build) -> None:
    """A program with a memcpy of its own, which does something else: its calls go there."""
    own = "-DOWN_MEMCPY"
    command = (str(build("copied_rows.c", own, "-fno-builtin")), "300", "150")
    native, trial = run(command, PATIENCE), run_under_memopt(command, PATIENCE)
    assert native.stdout != run((str(build("copied_rows.c")), "300", "150"), PATIENCE).stdout
    assert trial.same_result(native), trial.stderr


@pytest.mark.parametrize(("function", "bad"), some_rows([
    ("exp(-0.125*(x))", -1), ("exp(-0.125*(x))", REPETITIONS - 10), ("log(x)", REPETITIONS - 10),
    ("pow(x,0.3)", 0)], 1))
@pytest.mark.long
def test_a_nest_with_mathematical_functions_is_replaced(build: Build, function: str, bad: int) -> None:
    """exp(1250) is too large, log(-1e4) is no number: both set errno, each to its own number."""
    program = build("functions.c", f"-DFUNCTION(x)={function}", "-fno-builtin", "-Wl,--no-as-needed", "-lm")
    command = (str(program), "301", str(REPETITIONS), str(bad))
    native, trial = run(command, PATIENCE), run_under_memopt(command, PATIENCE)
    assert (b"errno" in native.stdout) == (bad >= 0)
    assert trial.same_result(native), trial.stderr
    assert trial.replaced, trial.stderr


def test_a_function_that_is_called_through_a_pointer_is_left_alone_as_a_call(build: Build) -> None:
    command = (str(build("pointer_called.c")), "100000")
    native, trial = run(command, PATIENCE), run_under_memopt(command, PATIENCE)
    assert trial.same_result(native), trial.stderr
    assert trial.report is not None, trial.stderr
    reasons = {x["function"]: x["reason"] for x in trial.report["loops"]}
    assert reasons["damp"] == "call-in-nest", trial.stderr
