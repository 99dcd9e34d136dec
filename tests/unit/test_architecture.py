"""A newcomer finds every module: its room's docstring names it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = sorted(p.parent for folder in ("memopt", "passes", "runtime") for p in (ROOT / folder).rglob("__init__.py"))
FLAT = {"memopt", "memopt/traces", "memopt/session", "passes", "runtime", "runtime/recording",
        "memopt/elf", "memopt/ir", "memopt/machine", "memopt/models", "memopt/report", "memopt/store", "memopt/x86"}


@pytest.mark.parametrize("room", [r for r in ROOMS if str(r.relative_to(ROOT)) not in FLAT],
                         ids=lambda room: str(room.relative_to(ROOT)))
def test_every_module_is_named(room: Path) -> None:
    described = ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""
    assert [p.stem for p in sorted(room.glob("*.py")) if f"``{p.stem}``" not in described and p.stem[0] != "_"] == []
