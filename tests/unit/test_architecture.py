"""ARCHITECTURE.md shows the rooms as they are, and a newcomer finds every module: its room's docstring names it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
FOLDERS = ("memopt", "passes", "runtime")
ROOMS = sorted(p.parent for folder in FOLDERS for p in (ROOT / folder).rglob("__init__.py"))
MODULES = sorted(p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py") if not p.stem.startswith("__"))
MOST_BYTES = 12 * 1024
LINES_WITHOUT_TESTS = 60  # a module of at most this many lines may be tested with its neighbours


def map_lines() -> Iterator[tuple[int, list[str]]]:
    """The map's lines from the top: how far each is indented, and the names in its first column."""
    for line in TEXT.split("```")[1].strip("\n").splitlines():
        names = line.strip().split("   ")[0]
        yield (len(line) - len(line.lstrip())) // 2, names.split()


def places() -> dict[str, int]:
    """The line of the map on which each room stands, and each module that has a line of its own."""
    found: dict[str, int] = {}
    above: list[str] = []
    for number, (depth, names) in enumerate(map_lines()):
        above[depth:] = [names[0].rstrip("/")]
        for name in names:
            path = "/".join((*above[:-1], name.rstrip("/")))
            found.setdefault(path, number)
    return found


def line_of(path: Path) -> int:
    """The line of ``path``, or of its room."""
    known, name = places(), str(path.relative_to(ROOT))
    return known[name] if name in known else known[str(path.parent.relative_to(ROOT))]


def imported(path: Path) -> Iterator[Path]:
    """The modules of ours that ``path`` imports, wherever it does so."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in FOLDERS:
            module = ROOT / node.module.replace(".", "/")
            for name in node.names:
                yield from (f for f in (module / f"{name.name}.py", module.with_suffix(".py")) if f.exists())


def test_the_map_shows_every_room_and_nothing_else() -> None:
    shown = {name for name in places() if name.split("/")[0] in FOLDERS and not name.endswith(".py")}
    assert shown == {str(room.relative_to(ROOT)) for room in ROOMS}
    assert all((ROOT / name).exists() for name in places())


def test_a_room_imports_only_what_stands_further_down() -> None:
    upwards = [(str(path.relative_to(ROOT)), str(other.relative_to(ROOT))) for path in MODULES
               for other in imported(path) if other.parent != path.parent and line_of(other) <= line_of(path)]
    assert upwards == []


def test_every_path_that_is_named_exists() -> None:
    named = re.findall(r"`([\w/]+(?:\.py|/))`", TEXT)
    rooms_to_come = TEXT[TEXT.index("Rooms that later"):TEXT.index("## The way of a nest")]
    missing = [n for n in named if n not in rooms_to_come
               and not any(ROOT.glob(n)) and not any(ROOT.glob(f"memopt/{n}"))]
    assert named
    assert missing == []


def test_it_can_be_read_in_one_sitting() -> None:
    assert len(TEXT.encode()) <= MOST_BYTES


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: str(room.relative_to(ROOT)))
def test_every_module_is_named(room: Path) -> None:
    described = ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""
    modules = [p.stem for p in sorted(room.glob("*.py")) if not p.stem.startswith("_")]
    assert [m for m in modules if f"``{m}``" not in described] == []


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: str(room.relative_to(ROOT)))
def test_every_module_of_some_length_has_a_test_file_or_its_room_says_which_one_tests_it(room: Path) -> None:
    described = ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""
    _, _, tested_by = described.partition("Tested by:")
    tests = ROOT / "tests" / "unit" / room.relative_to(ROOT)
    assert [path.stem for path in MODULES if path.parent == room
            and len(path.read_text().splitlines()) > LINES_WITHOUT_TESTS
            and not (tests / f"test_{path.stem}.py").exists() and f"``{path.stem}``" not in tested_by] == []
