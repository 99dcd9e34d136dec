"""Figures of the project's layout: files of each package, longest files, rewritten docstrings, contracts, tests.

    python -m bench.house [--since COMMIT] [--run TARGET]...

A room is a package of memopt, passes, runtime or bench. ``--since`` adds the share of modules whose docstring differs
from every docstring at COMMIT, and the tests of each folder then. ``--run`` adds the seconds that ``make TARGET``
takes.
"""

from __future__ import annotations

import ast
import statistics
import subprocess
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("memopt", "passes", "runtime", "bench")


def _now() -> dict[str, str]:
    """The text of every Python file of the work tree, by its path."""
    return {str(p.relative_to(ROOT)): p.read_text() for folder in (*FOLDERS, "tests")
            for p in sorted((ROOT / folder).rglob("*.py"))}


def _at(commit: str) -> dict[str, str]:
    """The text of every Python file at ``commit``, by its path."""
    names = _git("ls-tree", "-r", "--name-only", commit, *FOLDERS, "tests").splitlines()
    return {name: _git("show", f"{commit}:{name}") for name in names if name.endswith(".py")}


def _git(*arguments: str) -> str:
    return subprocess.run(("git", *arguments), cwd=ROOT, check=True, capture_output=True, text=True).stdout


def _modules(files: dict[str, str]) -> dict[str, str]:
    """The module docstrings of all ``files`` that are no tests, by path."""
    return {name: ast.get_docstring(ast.parse(text)) or "" for name, text in files.items()
            if not name.startswith("tests/")}


def _tests(files: dict[str, str]) -> Counter[str]:
    """The number of test functions in each folder of tests."""
    found: Counter[str] = Counter()
    for name, text in files.items():
        if name.startswith("tests/"):
            found[name.split("/")[1]] += sum(isinstance(n, ast.FunctionDef) and n.name.startswith("test_")
                                             for n in ast.walk(ast.parse(text)))
    return +found


def _layout(files: dict[str, str]) -> Iterator[str]:
    modules = _modules(files)
    rooms = Counter(str(Path(name).parent) for name in modules)
    largest = max(rooms, key=lambda room: rooms[room])
    yield f"rooms: {len(rooms)}; files in one: {statistics.median(rooms.values()):g} (median), at most {rooms[largest]}"
    yield "  " + ", ".join(f"{room} {count}" for room, count in sorted(rooms.items()))
    lengths = {name: text.count("\n") for name, text in files.items()}
    longest = sorted(lengths, key=lambda name: -lengths[name])[:3]
    yield "longest files: " + ", ".join(f"{name} {lengths[name]}" for name in longest)


def _contracts() -> Iterator[str]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    yield f"contracts: {len(contracts)}"
    yield from (f"  {contract['name']}" for contract in contracts)


def _rewritten(files: dict[str, str], earlier: dict[str, str]) -> str:
    known = set(_modules(earlier).values())
    modules = _modules(files)
    new = sum(text not in known for text in modules.values())
    return f"module docstrings rewritten: {new} of {len(modules)} ({new / len(modules):.0%})"


@click.command()
@click.option("--since", metavar="COMMIT", help="Compare with the files at COMMIT.")
@click.option("--run", "targets", multiple=True, metavar="TARGET", help="Time make TARGET; may be repeated.")
def main(since: str | None, targets: tuple[str, ...]) -> None:
    """Print figures of the project's layout."""
    files = _now()
    for line in (*_layout(files), *_contracts()):
        click.echo(line)
    tests = _tests(files)
    click.echo("tests: " + ", ".join(f"{folder} {count}" for folder, count in sorted(tests.items())))
    if since is not None:
        earlier = _at(since)
        before = _tests(earlier)
        click.echo("tests before: " + ", ".join(f"{folder} {count}" for folder, count in sorted(before.items())))
        click.echo(_rewritten(files, earlier))
    for target in targets:
        start = time.monotonic()
        code = subprocess.run(("make", target), cwd=ROOT, check=False, stdout=subprocess.DEVNULL).returncode
        click.echo(f"make {target}: {time.monotonic() - start:.0f} s, exit code {code}")


if __name__ == "__main__":
    main()
