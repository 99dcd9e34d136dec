"""``make suite``: every kernel in every build, natively and under memopt, with reference compilers beside it.

    python -m bench.suite [OPTION]...

A cell that is done is appended to the result file as one line of JSON; the last line of a cell counts. So a part can be
run again (``--kernels``, ``--builds``), and an interrupted run continues with ``--resume``. A table holds cells of one
mode, quick or full. The exit code is 1 if any output differs from the native one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import click

from bench.cells import BUILDS, MAIN_BUILD, REFERENCES, Cell, run_cell, run_reference
from bench.programs.families import FAMILIES, KERNELS, Kernel
from bench.suite_tables import suite_text, wrong
from memopt.report.files import write

_Check = Callable[[click.Context, click.Parameter, str | None], tuple[str, ...]]


def _names(known: Collection[str], what: str, everything: Collection[str]) -> _Check:
    def check(_context: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
        names = tuple(everything) if value is None else tuple(x for x in value.split(",") if x)
        for name in names:
            if name not in known:
                raise click.BadParameter(f"{name}: not a {what}; known are {', '.join(known)}")
        return names

    return check


@click.command()
@click.option("--kernels", callback=_names([*KERNELS, *FAMILIES], "kernel or family", KERNELS),
              help="Kernels or families, separated by commas.  [default: all]")
@click.option("--builds", callback=_names(BUILDS, "build", BUILDS), help=f"Of {', '.join(BUILDS)}.  [default: all]")
@click.option("--references", callback=_names(REFERENCES, "reference", REFERENCES),
              help=f"Of {', '.join(REFERENCES)}; an empty string for none.  [default: all]")
@click.option("--quick", is_flag=True, help="Native runs of two to three seconds instead of ten.")
@click.option("--fp", "fast", is_flag=True, help="Add a run with --fp fast for the main build.")
@click.option("--runs", type=click.IntRange(min=1), default=1, show_default=True, help="Repetitions of each cell.")
@click.option("--json", "output", type=click.Path(dir_okay=False, path_type=Path),
              default=Path("build/bench/suite.jsonl"), show_default=True, help="Result file; the table is beside it.")
@click.option("--resume", is_flag=True, help="Run only cells that the result file does not hold.")
@click.option("--table-only", is_flag=True, help="Run nothing; make the table of the cells in the result file.")
def main(kernels: tuple[str, ...], builds: tuple[str, ...], references: tuple[str, ...], quick: bool, fast: bool,
         runs: int, output: Path, resume: bool, table_only: bool) -> None:
    """Measure memopt on the kernels of the suite."""
    output.parent.mkdir(parents=True, exist_ok=True)
    cells = {cell.key: cell for cell in _read(output)}
    cells = {key: cell for key, cell in cells.items() if table_only or (cell.mode == "quick") == quick}
    chosen = [k for k in KERNELS.values() if k.name in kernels or k.family in kernels]
    if not table_only:
        done = set(cells) if resume else set()
        for cell in _run(chosen, builds, references, quick, fast, runs, output.parent / "programs", done):
            cells[cell.key] = cell
            with output.open("a") as stream:
                stream.write("\n" + json.dumps(cell.to_json()) + "\n")  # "\n" in front: ends an incomplete line
            click.echo(_progress(cell), err=True)
    text = suite_text(list(cells.values()))
    write(str(output.with_suffix(".md")), text)
    click.echo(text)
    sys.exit(1 if any(wrong(c) for c in cells.values()) else 0)


def _read(path: Path) -> list[Cell]:
    """The cells of earlier runs in the result file. An incomplete line of an interrupted run is dropped."""
    cells = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            cells.append(Cell.from_json(json.loads(line)))
        except ValueError:
            continue
    return [c for c in cells if c.kernel in KERNELS]


def _run(kernels: list[Kernel], builds: tuple[str, ...], references: tuple[str, ...], quick: bool, fast: bool,
         runs: int, folder: Path, done: set[tuple[str, str]]) -> Iterator[Cell]:
    for kernel in kernels:
        for name in builds:
            if BUILDS[name].applies(kernel) and (kernel.name, name) not in done:
                yield run_cell(kernel, BUILDS[name], quick, runs, fast and name == MAIN_BUILD, folder)
        for name in references:
            if kernel.affine and REFERENCES[name].applies(kernel) and (kernel.name, name) not in done:
                yield run_reference(kernel, REFERENCES[name], quick, runs, folder)


def _progress(cell: Cell) -> str:
    if cell.memopt_seconds is None:
        step = f"{cell.native_step:.4f} s" if cell.native_step else cell.detail
        return f"{cell.kernel} {cell.build}: {step}"
    outcome = "replaced" if cell.replaced else cell.reason or cell.detail
    speed = f" {cell.speedup:.2f}x" if cell.speedup else ""
    return f"{cell.kernel} {cell.build}: {'' if cell.identical else 'WRONG '}{outcome}{speed}"


if __name__ == "__main__":
    main()
