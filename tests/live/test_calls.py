"""Nests that call functions: one of the program's own, and those of the C library that copy and fill memory."""

from __future__ import annotations

import pytest

from bench.execution import run, run_under_memopt
from tests.conftest import Build

PATIENCE = 120.0


@pytest.mark.parametrize(("compiler", "level"), [("gcc", "-O1"), ("gcc", "-O2"), ("clang", "-O2")])
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
