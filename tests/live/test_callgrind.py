"""Calling contexts of ``memopt profile --exact`` are those that callgrind finds (tests.support.callgrind), and the
exports of a profile hold its counts.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from bench.measure.execution import memopt_command, run
from tests.conftest import Build
from tests.support.callgrind import Contexts, Way, heaviest, measure
from tests.support.effort import some, some_rows
from tests.support.profiles import asked, record
from tests.support.tools import need
from tests.support.waiting import PATIENCE

_PROGRAMS = (("three_functions.c", "gcc"), ("entered_otherwise.c", "gcc"), ("rethrown.cpp", "g++"))


@pytest.mark.parametrize(("source", "compiler", "binding"), some_rows(
    [(*program, binding) for binding in ("lazy", "now") for program in _PROGRAMS], 2))
def test_contexts_are_those_of_callgrind(build: Build, tmp_path: Path, source: str, compiler: str, binding: str
                                         ) -> None:
    """With functions of other files found at the first call, or before. The dynamic linker itself has more to look
    through under valgrind, which loads a library of its own."""
    need("valgrind")
    program = build(source, "-pthread", f"-Wl,-z,{binding}", compiler=compiler, level="-O2")
    ours, theirs = measure((str(program),), tmp_path)
    assert _of_program(ours, program) == _of_program(theirs, program)
    main = f"main [{program.name}]"
    assert set(heaviest(ours.below(main), 10)) == set(heaviest(theirs.below(main), 10))


@pytest.mark.parametrize("command", some([
    ("entered_otherwise.c",), ("rethrown.cpp",), ("three_functions.c",), ("/bin/ls", "/usr/bin"),
    ("/usr/bin/python3", "-S", "-E", "-c", "print(sum(x * x for x in range(100)))"),
], 1))
def test_exports_hold_the_counts_of_the_database(build: Build, tmp_path: Path, command: tuple[str, ...]) -> None:
    """callgrind_annotate's total and its ten largest rows, and the total of speedscope's file."""
    need("callgrind_annotate", command[0] if command[0].startswith("/") else "gcc")
    if not command[0].startswith("/"):
        compiler = "g++" if command[0].endswith(".cpp") else "gcc"
        command = str(build(command[0], "-g", "-pthread", compiler=compiler, level="-O2")),
    path, text, document = tmp_path / "p.db", tmp_path / "callgrind", tmp_path / "speedscope"
    record(command, path)
    written = run([*memopt_command(), "report", "--callgrind", str(text), "--speedscope", str(document), str(path)],
                  PATIENCE)
    assert written.exit_code == 0, written.stderr
    annotated = run(["callgrind_annotate", "--threshold=100", "--auto=no", str(text)], PATIENCE).stdout.decode()
    total, *rows = (int(row.replace(",", "")) for row in re.findall(r"(?m)^ *([\d,]+) \(", annotated))
    expected = [row["instructions"] for row in asked(path, """SELECT sum(instructions) AS instructions FROM context
        GROUP BY image, function, iif(function IS NULL, entry, 0) ORDER BY 1 DESC""")]
    assert total == sum(rows) == sum(int(str(count)) for count in expected)
    assert rows[:10] == expected[:10]
    assert sum(sum(profile["weights"]) for profile in json.loads(document.read_text())["profiles"]) == total


def _of_program(contexts: Contexts, program: Path) -> Counter[Way]:
    """The instructions of the functions of the program that have names, from the first function of the program on: what
    calls the first function of a thread is another one natively (clone3)."""
    found: Counter[Way] = Counter()
    for way, count in contexts.own.items():
        own = [at for at, name in enumerate(way) if name.endswith(f"[{program.name}]")]
        if own and own[-1] == len(way) - 1 and not way[-1].startswith("function 0x"):
            found[way[own[0]:]] += count
    return found
