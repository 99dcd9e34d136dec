"""Parts of outside packages that memopt does without: the packages work, and the parts are not imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from memopt.imports import deferred, stand_in


def test_a_stand_in_is_gone_afterwards() -> None:
    with stand_in("memopt_no_such_module", answer=42):
        from memopt_no_such_module import answer  # type: ignore[import-not-found]
    assert answer == 42
    assert "memopt_no_such_module" not in sys.modules


def test_a_module_that_is_there_stays() -> None:
    with stand_in("json"):
        import json
    assert json.loads("1") == 1


def test_a_deferred_module_is_loaded_at_its_first_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "memopt_slow_module.py").write_text("answer = 42\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with deferred("memopt_slow_module"):
        import memopt_slow_module  # type: ignore[import-not-found]
    assert "memopt_slow_module" not in sys.modules
    assert memopt_slow_module.answer == 42
    assert "memopt_slow_module" in sys.modules


@pytest.mark.parametrize("pickled", [False, True], ids=["first use", "with a pickle"])
def test_instructions_are_understood_without_the_parts_left_out(pickled: bool, tmp_path: Path) -> None:
    """The first process parses C declarations, for which cffi needs pycparser; the second reads them from a pickle."""
    tmp_path.chmod(0o700)
    code = ("import sys\nfrom memopt.x86.semantics import lift_block\nimport memopt.polyhedral.isl\n"
            "assert 'add' in str(lift_block(bytes.fromhex('4801c3'), 0x1000))\n"
            "print(*(m for m in ('pycparser.c_parser', 'bitstring', 'email') if m in sys.modules))")
    environment = {"XDG_CACHE_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    for _ in range(1 + pickled):
        ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ([] if pickled else ["pycparser.c_parser"])
