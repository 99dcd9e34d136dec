"""What runs while the program waits to start imports nothing heavy."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"capstone", "cxxfilt", "symbolic", "islpy", "keystone", "lief", "numpy", "pyvex", "unicorn"}


@pytest.mark.parametrize("module", [
    "memopt.cli", "memopt.elf.image", "memopt.elf.symbols", "memopt.elf.unwind", "memopt.elf.lines",
    "memopt.report.text", "memopt.report.json", "memopt.report.files",
])
def test_light_modules_import_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*{{name.split('.')[0] for name in sys.modules}})"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert "memopt" in loaded
    assert not HEAVY & set(loaded)
