"""Intermittent path profiles of a compressor, compared with its full path profile over a grid of quotas and intervals.

    python -m bench.paths [--rounds N] [--grid]

The quota UT is the number of paths in a window (``--unhook``), the interval RI the cycles between windows
(``--rehook``). A path is hot by one of three criteria: it has 1 % of all paths; it is one of the five most frequent; it
is the most frequent of its function. Detected: the part of the hot paths of the full profile that the intermittent
profile has, too. Falsely detected: hot paths of the intermittent profile alone, as a part of those of the full one.
Paths within 0.1 points of a threshold count as either. Overheads are of whole processes, native = 0.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.measure.execution import memopt_command, run
from bench.programs.variants import KERNELS, compile_c
from memopt.store.schema import open_existing

Path_ = tuple[str, int]
Shares = dict[Path_, float]  # percent of all paths, by function and path number

_QUOTAS = (50, 100, 500, 1000, 5000, 10_000)
_INTERVALS = (100_000, 500_000, 1_000_000, 5_000_000, 10_000_000)
# Pairs of quota and interval that are measured without --grid.
_ASKED = ((5000, 5_000_000), (5000, 10_000_000), (10_000, 5_000_000), (10_000, 10_000_000))
_EITHER = 0.1  # percentage points: a path this close to a threshold counts as hot and as not hot
_PATIENCE_S = 900.0


@dataclass(frozen=True, slots=True)
class Hot:
    """The hot paths of a profile by one criterion."""

    sure: frozenset[Path_]  # at or above the threshold
    perhaps: frozenset[Path_]  # within 0.1 points of the threshold, on either side


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--grid", action="store_true", help="measure the whole published grid")
    options = parser.parse_args()
    command = [str(options.rounds)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = folder / "compress"
        compile_c(("gcc", "-O2"), KERNELS / "compress.c", program, [])
        native = run([str(program), *command], _PATIENCE_S)
        full, seconds = profile(folder, program, command, "--exact")
        whole = seconds / native.seconds - 1
        sys.stdout.write(f"compress, {options.rounds} rounds, native {native.seconds:.2f} s; full profile: overhead "
                         f"{100 * whole:.0f} %\\n\\n".replace("\\n", "\n"))
        sys.stdout.write("| RI | UT | 1 %: detected, falsely | top five | of each function | overhead | of the full "
                         "profile's |\n|" + " --- |" * 7 + "\n")
        chosen = [(q, i) for i in _INTERVALS for q in _QUOTAS if q * 1000 <= i or (q, i) in _ASKED]
        for quota, interval in chosen if options.grid else _ASKED:
            shares, seconds = profile(folder, program, command, "--unhook", str(quota), "--rehook", str(interval))
            rates = [rate(hot(full), hot(shares)) for hot in (percent, five, of_each)]
            overhead = seconds / native.seconds - 1
            sys.stdout.write(f"| {interval:,} | {quota:,} | "
                             + " | ".join(f"{100 * d:.0f} %, {100 * f:.0f} %" for d, f in rates)
                             + f" | {100 * overhead:.0f} % | {overhead / whole:.2f} |\n")
            sys.stdout.flush()
    return 0


def profile(folder: Path, program: Path, arguments: list[str], *options: str) -> tuple[Shares, float]:
    """Runs ``memopt profile --paths``. Returns the shares of paths of the program's own functions, and the seconds of
    the whole process."""
    path = folder / "p.db"
    done = run([*memopt_command(), "profile", "--quiet", "--paths", *options, "-o", str(path), "--", str(program),
                *arguments], _PATIENCE_S)
    return shares_of(path, program), done.seconds


def shares_of(path: Path, program: Path) -> Shares:
    """Shares of paths in the profile at ``path``, for functions of ``program`` that have more than one path. Only paths
    that are numbered from the function's start count."""
    connection = open_existing(str(path))
    rows = connection.execute("""
        SELECT f.name, p.number, p.count FROM path p JOIN function f ON f.id = p.function
        JOIN image m ON m.id = f.image WHERE m.path = ? AND p.entry = f.start AND p.paths > 1""",
                              (str(program.resolve()),)).fetchall()
    connection.close()
    total = sum(count for *_, count in rows)
    return {(function, number): 100 * count / total for function, number, count in rows}


def percent(shares: Shares) -> Hot:
    """Paths with 1 % of all paths or more."""
    return _within(shares, 1.0)


def five(shares: Shares) -> Hot:
    """The five most frequent paths."""
    ordered = sorted(shares.values(), reverse=True)
    return _within(shares, ordered[4] if len(ordered) > 4 else 0.0)


def _within(shares: Shares, threshold: float) -> Hot:
    return Hot(frozenset(p for p, share in shares.items() if share >= threshold),
               frozenset(p for p, share in shares.items() if abs(share - threshold) <= _EITHER))


def of_each(shares: Shares) -> Hot:
    """The most frequent path of each function."""
    of: dict[str, list[tuple[float, Path_]]] = {}
    for path, share in shares.items():
        of.setdefault(path[0], []).append((share, path))
    near = {max(found)[1]: frozenset(p for share, p in found if share >= max(found)[0] - _EITHER)
            for found in of.values()}
    return Hot(frozenset(near), frozenset(p for several in near.values() if len(several) > 1 for p in several))


def rate(full: Hot, found: Hot) -> tuple[float, float]:
    """The rates of detection and of false detection, 0 to 1."""
    certain = full.sure - full.perhaps
    detected = len(certain & (found.sure | found.perhaps)) / max(1, len(certain))
    false = len(found.sure - found.perhaps - full.sure - full.perhaps) / max(1, len(full.sure))
    return detected, false


if __name__ == "__main__":
    sys.exit(main())
