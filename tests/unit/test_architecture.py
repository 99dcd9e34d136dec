"""ARCHITECTURE.md names every file, and only files that there are."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("memopt", "passes", "runtime", "bench")
FILES = [p.relative_to(ROOT) for folder in FOLDERS for p in (ROOT / folder).rglob("*.py")]
NAMED = {Path(name) for name in re.findall(r"\b[\w/]+\.py\b", (ROOT / "ARCHITECTURE.md").read_text())}


def test_every_file_is_named() -> None:
    names = {path.name for path in NAMED}
    assert [f for f in FILES if f.name not in names and not f.name.startswith("__")] == []


def test_every_file_that_is_named_exists() -> None:
    assert [n for n in NAMED if not any(f.parts[-len(n.parts):] == n.parts for f in FILES)] == []
