"""Calling contexts of ``memopt profile --exact`` are those that callgrind finds (tests.support.callgrind)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Build
from tests.support.callgrind import Contexts, Way, heaviest, measure
from tests.support.effort import some_rows
from tests.support.tools import need

_PROGRAMS = (("three_functions.c", "gcc"), ("entered_otherwise.c", "gcc"), ("rethrown.cpp", "g++"))


@pytest.mark.parametrize(("source", "compiler", "binding"), some_rows(
    [(*program, binding) for binding in ("lazy", "now") for program in _PROGRAMS], 2))
def test_contexts_are_those_of_callgrind(build: Build, tmp_path: Path, source: str, compiler: str, binding: str
                                         ) -> None:
    """With functions of other files found at the first call, or before. The dynamic linker itself has more to look
    through under valgrind, which loads a library of its own."""
    need("valgrind")
    program = build(source, "-pthread", f"-Wl,-z,{binding}", compiler=compiler, level="-O2")
    ours, theirs = (found.below(f"main [{program.name}]") for found in measure((str(program),), tmp_path))
    assert set(heaviest(ours, 10)) == set(heaviest(theirs, 10))
    assert _of_program(ours, program) == _of_program(theirs, program)


def _of_program(contexts: Contexts, program: Path) -> dict[Way, int]:
    return {way: count for way, count in contexts.own.items() if way[-1].endswith(f"[{program.name}]")}
