"""Working sets of a matrix product, plain and tiled: derived from subscripts (``--affine``), compared with traces.

    python -m bench.workingsets [--size N] [--seconds S]

At full size the program is ended after S seconds of processor time; memopt has sampled and lifted its nest by then. At
a small size, derived working sets are compared with those of a trace. The exit code is 1 if one differs.
"""

from __future__ import annotations

import argparse
import functools
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.measure.execution import memopt_command, run
from bench.programs.variants import KERNELS, compile_c
from memopt.store.schema import open_existing

# By (header, depth) of a loop: bytes of the cache lines that an entry has touched, by the number of iterations.
Curves = dict[tuple[int, int], dict[int, float]]

TILE = 32
_SMALL, _SMALL_TILE, _AGAIN = 128, 16, 6000
_PATIENCE_S = 600.0


def main() -> int:
    """Prints the tables. Returns 0 if the small sizes agree with their traces, else 1."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size", type=int, default=4000)
    parser.add_argument("--seconds", type=int, default=8)
    options = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        for tile in (0, TILE):
            program = build(Path(name), options.size, tile)
            path = Path(name) / "derived.db"
            limit = functools.partial(resource.setrlimit, resource.RLIMIT_CPU, (options.seconds, options.seconds + 60))
            subprocess.run(_profile(path, "--affine", program), check=False, capture_output=True, preexec_fn=limit)
            sys.stdout.write(f"product of {options.size} x {options.size}, {_how(tile)}: KiB of lines by an entry\n"
                             "| depth | iterations | after 1 | after all |\n| --- | --- | --- | --- |\n")
            for (_, depth), curve in sorted(derived(path).items(), key=lambda item: item[0][1]):
                last = max(curve)
                sys.stdout.write(f"| {depth} | {last:,} | {curve[1] / 1024:,.1f} | {curve[last] / 1024:,.1f} |\n")
        for tile in (0, _SMALL_TILE):
            same, differ = compared(Path(name), _SMALL, tile, _AGAIN)
            sys.stdout.write(f"product of {_SMALL} x {_SMALL}, {_how(tile)}: {same} points as in the trace, "
                             f"{differ} not\n")
            wrong += differ + (same == 0)
    return int(wrong > 0)


def _how(tile: int) -> str:
    return f"tiles of {tile}" if tile else "plain"


def build(folder: Path, size: int, tile: int) -> Path:
    """The product of matrices of ``size``, in tiles of ``tile``; 0: not tiled."""
    program = folder / f"{size}-{tile}"
    compile_c(("gcc", "-O2"), KERNELS / "tiled_product.c", program, [f"-DN={size}", f"-DTILE={tile}"])
    return program


def compared(folder: Path, size: int, tile: int, again: int, deepest: int = 6) -> tuple[int, int]:
    """Counts the points of the traced curves that are derived to the byte, and those that are not.

    Only loops up to the depth ``deepest`` are compared: if tiles are cut off at the matrix border, a trace tells the
    mean over tiles, from depth 2 on. ``again``: repetitions of the product in the run without a trace, so that it gets
    hot.
    """
    path, program = folder / "p.db", build(folder, size, tile)
    run(_profile(path, "--affine", program, again), _PATIENCE_S)
    found = derived(path)
    run(_profile(path, "--memory", program), _PATIENCE_S)
    expected = traced(path)
    points = [(curve[iterations], lines) for loop, curve in found.items() for iterations, lines in
              expected.get(loop, {}).items() if iterations in curve and loop[1] <= deepest]
    same = sum(one == two for one, two in points)
    return same, len(points) - same


def _profile(path: Path, option: str, program: Path, again: int = 1) -> list[str]:
    how_often = f"{again:05}"  # arguments of the same length: they shift the stack
    return ["setarch", "-R", *memopt_command(), "profile", "--quiet", option, "-o", str(path), "--", str(program),
            how_often]


def derived(path: Path) -> Curves:
    """The curves of a profile of ``--affine``."""
    return _curves(path, """SELECT l.header, l.depth, d.iterations, d.lines
        FROM derived_set d JOIN loop l ON l.id = d.loop""")


def traced(path: Path) -> Curves:
    """The curves of a profile of ``--memory``, for the function ``product``."""
    return _curves(path, """SELECT l.header, l.depth, w.iterations, w.lines
        FROM working_set w JOIN loop l ON l.id = w.loop JOIN function f ON f.id = l.function
        WHERE f.name = 'product'""")


def _curves(path: Path, question: str) -> Curves:
    found: Curves = {}
    connection = open_existing(str(path))
    for header, depth, iterations, lines in connection.execute(question):
        found.setdefault((header, depth), {})[int(iterations)] = float(lines)
    connection.close()
    return found


if __name__ == "__main__":
    sys.exit(main())
