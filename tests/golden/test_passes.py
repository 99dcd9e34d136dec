"""One pass on one nest, text in and text out, in files kept beside this one (passes/*.txt).

A file is a nest (and a plan, for ``legality``) behind a line ``# RUN:`` with the options of ``memopt.opt``. What that
prints is behind a line ``# CHECK``: its output, or its exit code and its error. To add a file, write the part before
``# CHECK``. Regenerate the rest after an intended change with ``UPDATE_GOLDEN=1 pytest tests/golden``, and read the
difference.
"""

from __future__ import annotations

import io
import os
import shlex
from pathlib import Path

import pytest

from memopt.ir.parse import parse_plan
from memopt.opt import PASSES, main
from tests.support.machines import HASWELL, ZEN5

_FOLDER = Path(__file__).parent / "passes"
_FILES = sorted(_FOLDER.glob("*.txt"))
_CHECK = "# CHECK\n"


def _arguments(text: str) -> list[str]:
    first = text.split("\n")[0]
    assert first.startswith("# RUN: "), first
    return shlex.split(first.removeprefix("# RUN: "))


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_passes(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    given, _, expected = path.read_text().partition(_CHECK)
    monkeypatch.chdir(_FOLDER)
    monkeypatch.setattr("sys.stdin", io.StringIO(given))
    code = main(_arguments(given))
    output = capsys.readouterr()
    printed = output.out if code == 0 else f"exit code {code}: {output.err}"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(given + _CHECK + printed)
        expected = printed
    assert printed == expected
    assert code == 0 or printed.count("\n") == 1


def test_every_pass_has_a_file() -> None:
    run = [_arguments(path.read_text()) for path in _FILES]
    assert {arguments[arguments.index("--pass") + 1] for arguments in run} == PASSES.keys()


def test_machines_are_those_of_the_other_tests() -> None:
    assert [(_FOLDER / f"{name}.toml").read_text() for name in ("zen5", "haswell")] == [
        ZEN5.to_toml(), HASWELL.to_toml()]


def test_plans_that_are_printed_are_legal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What one pass prints, another one reads."""
    checked = 0
    for path in _FILES:
        given, _, printed = path.read_text().partition(_CHECK)
        if "-plan" in _arguments(given)[1] and not printed.startswith("exit code"):
            for plan in printed.split("\n---\n"):
                assert str(parse_plan(plan)) == plan.rstrip("\n")
                monkeypatch.setattr("sys.stdin", io.StringIO(f"{given}---\n{plan}"))
                assert main(["--pass", "legality"]) == 0, path.name
                checked += 1
    assert checked > 5
    assert capsys.readouterr().out == "legal\n" * checked
