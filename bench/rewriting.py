"""Kernels of the suite, rewritten: outputs and speed of the new file beside the original and ``memopt exec``.

    python -m bench.rewriting [--kernels NAMES] [--builds NAMES] [--json FILE]

For each kernel that is affine: the program is rewritten with one training of a few seconds. The original, the new file
and the original under ``memopt exec`` run in turn. Then the new file runs at five sizes that it was not trained with.
The table has the median seconds of a repetition; for ``exec`` of the second half of its repetitions, when new code is
in place. "elsewhere": how much faster the new file is at the largest of the five sizes. The exit code is 1 if any
output differs from the original's.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from bench.cells import BUILDS, MAIN_BUILD
from bench.measure.execution import Execution, median, memopt_command, run, run_under_memopt
from bench.programs.families import KERNELS, Kernel

_TIMEOUT = 900.0


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel in one build. Seconds are those of a repetition; None where there is none."""

    kernel: str
    build: str
    written: bool
    identical: bool
    growth: int = 0  # bytes of the file
    native: float | None = None
    rewritten: float | None = None
    improved: float | None = None  # under memopt exec
    elsewhere: float | None = None  # the original's seconds over the new file's, at a size that is not trained
    detail: str = ""

    @property
    def speedup(self) -> float | None:
        """The original's seconds over the new file's."""
        return self.native / self.rewritten if self.native and self.rewritten else None


def measured(kernel: Kernel, build: str, folder: Path) -> Row:
    """Rewrite a kernel, and run what came out."""
    original = Path(BUILDS[build].compile(kernel, folder))
    new = original.with_name(original.name + ".new")
    new.unlink(missing_ok=True)
    words = (str(kernel.quick),)
    made = run([*memopt_command(), "rewrite", str(original), "-o", str(new), "--train", "--", *words], _TIMEOUT)
    if not new.exists():
        said = made.stderr.strip().splitlines()
        return Row(kernel.name, build, False, True, detail=said[-1].partition(": ")[2] if said else "no message")
    native, rewritten = run([str(original), *words], _TIMEOUT), run([str(new), *words], _TIMEOUT)
    improved = run_under_memopt([str(original), *words], _TIMEOUT)
    pairs = [(run([str(original), *sizes], _TIMEOUT), run([str(new), *sizes], _TIMEOUT))
             for sizes in _other_sizes(kernel)]
    same = all(one.same_result(other) for one, other in [(native, rewritten), *pairs])
    before, after = (median(x.steps) for x in pairs[-1])
    return Row(kernel.name, build, True, same, os.path.getsize(new) - os.path.getsize(original),
               median(native.steps), median(rewritten.steps), _late(improved),
               before / after if before and after else None,
               "" if same else f"exit code {rewritten.exit_code}, not {native.exit_code}, or another output")


def _other_sizes(kernel: Kernel) -> list[tuple[str, ...]]:
    """Arguments: repetitions, and multiples of the kernel's small sizes."""
    firsts = {1: (37, 43), 2: (75,), 3: (110,), 5: (186,)}
    return [("7", *map(str, (first, *(times * n for n in kernel.small)))) for times, x in firsts.items() for first in x]


def _late(execution: Execution) -> float | None:
    steps = execution.steps
    return median(steps[len(steps) // 2:])


def table(rows: Sequence[Row]) -> str:
    """The rows as markdown, with a line that sums them up."""
    lines = ["| kernel | build | original | new file | times | elsewhere | exec | growth |", "| --- " * 8 + "|"]
    for row in rows:
        figures = [f"{x:.4f} s" if x else "" for x in (row.native, row.rewritten)]
        times = f"{row.speedup:.1f}" if row.speedup else row.detail
        exec_ratio = f"{row.improved / row.rewritten:.2f}" if row.improved and row.rewritten else ""
        wrong = "" if row.identical else "**WRONG** "
        elsewhere = f"{row.elsewhere:.1f}" if row.elsewhere else ""
        lines.append(f"| {row.kernel} | {row.build} | {figures[0]} | {figures[1]} | {wrong}{times} | {elsewhere} "
                     f"| {exec_ratio} | {row.growth >> 10} KiB |")
    done = [r for r in rows if r.written]
    fast = sum((r.speedup or 0) >= 1.15 for r in done)
    wrong_ones = sum(not r.identical for r in done)
    lines += ["", f"{len(rows)} programs, {len(done)} rewritten, {wrong_ones} wrong, {fast} faster by 15 % or more."]
    return "\n".join(lines)


@click.command()
@click.option("--kernels", default="", help="Names, separated by commas.  [default: all that are affine]")
@click.option("--builds", default=MAIN_BUILD, show_default=True, help=f"Of {', '.join(BUILDS)}.")
@click.option("--json", "output", type=click.Path(dir_okay=False, path_type=Path),
              default=Path("build/bench/rewriting.jsonl"), show_default=True, help="Result file.")
def main(kernels: str, builds: str, output: Path) -> None:
    """Measure rewritten kernels of the suite."""
    output.parent.mkdir(parents=True, exist_ok=True)
    chosen = [k for k in KERNELS.values() if k.affine and (not kernels or k.name in kernels.split(","))]
    rows = list[Row]()
    for build in builds.split(","):
        for kernel in chosen:
            rows.append(measured(kernel, build, output.parent / "programs"))
            with output.open("a") as stream:
                stream.write(json.dumps(asdict(rows[-1])) + "\n")
            click.echo(f"{kernel.name} {build}: {rows[-1].speedup or rows[-1].detail}", err=True)
    click.echo(table(rows))
    sys.exit(1 if any(not r.identical for r in rows) else 0)


if __name__ == "__main__":
    main()
