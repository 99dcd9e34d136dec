"""Memory beside the cells that a replaced nest touches is given back, protected, or counted in by a signal handler: the
new code is in place, and goes on as the original would."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.conftest import Build
from tests.support.effort import some_rows
from tests.support.told import EXIT_CODE, Told, native_output

# Seconds in which replaced code is entered. Longer is no worse, shorter may miss the change that matters.
_IN_SERVICE = 0.5
MODES = ("shorter", "last", "freed", "triangle", "flag", "padding", "holes", "sums")


@pytest.mark.parametrize(("compiler", "mode"), some_rows(
    [("gcc", mode) for mode in MODES] + [("clang", mode) for mode in MODES], 4))
def test_new_code_does_not_touch_what_the_original_does_not(build: Build, tmp_path: Path, compiler: str,
                                                            mode: str) -> None:
    program = build("changed_memory.c", "-Wl,--no-as-needed", "-lm", compiler=compiler)
    with Told(program, tmp_path, arguments=(mode,)) as told:
        told.await_replaced()
        time.sleep(_IN_SERVICE)
        finished = told.finish()
        assert finished == (EXIT_CODE, native_output(program, mode)), told.stderr
        assert any(": replaced " in line for line in told.words), told.stderr
