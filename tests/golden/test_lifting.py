"""Nest, statements and region of matrix products as compilers wrote them, against files kept beside this one.

The inputs are compilers' assembly (gcc 12, clang 14), so that they stay what they are. Regenerate the texts after an
intended change with ``UPDATE_GOLDEN=1 pytest tests/golden``, and read the difference.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.lifting import lift_stopped, normalised, stopped_at_nest

_FOLDER = Path(__file__).parent / "analysis"
_FIXED = ("-Wl,-Ttext=0x401000", "-Wl,-Tdata=0x10000000", "-Wl,-Tbss=0x20000000", "-Wl,--build-id=none")
_KERNELS = sorted(p.stem for p in _FOLDER.glob("*.s") if p.stem != "start")


@pytest.mark.parametrize("name", _KERNELS)
def test_lifting(name: str, tmp_path: Path) -> None:
    program = tmp_path / name
    sources = [_FOLDER / f"{name}.s", _FOLDER / "start.s"]
    subprocess.run(["gcc", "-nostdlib", "-static", "-no-pie", *_FIXED, "-o", program, *sources], check=True)
    with stopped_at_nest([str(program)]) as (process, code, loop):
        lifted = lift_stopped(process, code, loop)
    parts = (normalised(str(lifted.outer.node)), normalised(str(lifted.statements)), str(lifted.region))
    text = "\n\n".join(parts) + "\n"
    golden = _FOLDER / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()


def test_there_are_kernels() -> None:
    assert len(_KERNELS) == 20
