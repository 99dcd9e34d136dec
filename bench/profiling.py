"""Costs of ``memopt profile`` on an SSOR solver, and its counts compared with the counts that the source implies.

    python -m bench.profiling [--runs N]

Native, sampled and exact runs alternate, at three sizes. Figures are medians of whole processes, memopt's start and the
writing of the file included. Calls and iterations are compared with the source; instructions of the smallest size with
callgrind, if it is installed. Dependences are found in a quarter of the iterations, everything about memory in a short
run. The readers of traces are compiled before the measurement.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.measure import callgrind
from bench.measure.execution import Execution, ask, memopt_command, run
from bench.programs.variants import KERNELS, compile_c

_SIZES = ((320, 49), (80, 97), (40, 129))  # iterations, points along the shortest side
_SMALLEST = (12, 25)
# Options, iterations and sizes of the runs that trace memory.
_WATCHED = (*(("--dependences", iterations // 4, size) for iterations, size in _SIZES), ("--memory", 100, 25))
_PATIENCE_S = 600.0
_FIELDS = 3


@dataclass(frozen=True, slots=True)
class Cost:
    """The costs at one size: seconds of whole processes."""

    iterations: int
    size: int
    native: float
    sampled: float
    exact: float
    identical: bool  # all outputs
    as_in_the_source: bool  # counts of calls and iterations


def main() -> int:
    """Prints the table and the comparisons."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = folder / "ssor"
        compile_c(("gcc", "-O2"), KERNELS / "ssor.c", program, [], ["-lm"])
        _say("SSOR, gcc -O2: whole processes, native = 1\n")
        _say("| grid | iterations | native | sampled | exact | output | calls and iterations |\n|" + " --- |" * 7)
        for iterations, size in _SIZES:
            row = _cost(program, folder, iterations, size, runs)
            _say(f"| {size} x {size + 1} x {size + 2} | {iterations} | {row.native:.2f} s | "
                  f"{row.sampled / row.native:.2f} | {row.exact / row.native:.2f} | "
                  f"{'identical' if row.identical else 'DIFFERENT'} | "
                  f"{'as in the source' if row.as_in_the_source else 'WRONG'} |")
        _say(f"\n{_against_callgrind(program, folder)}")
        _profile((str(program), *map(str, _SMALLEST)), folder / "compiled.db", ("--memory",))
        for option, iterations, size in _WATCHED:
            _say(_watched(program, folder, option, iterations, size))
    return 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _cost(program: Path, folder: Path, iterations: int, size: int, runs: int) -> Cost:
    command = (str(program), str(iterations), str(size))
    profiles = {"sampled": (), "exact": ("--exact",)}
    found: dict[str, list[Execution]] = {"native": [], **{name: [] for name in profiles}}
    for _ in range(runs):
        found["native"].append(run(command, _PATIENCE_S))
        for name, options in profiles.items():
            found[name].append(_profile(command, folder / f"{name}.db", options))
    first = found["native"][0]
    seconds = {name: statistics.median([e.seconds for e in executions]) for name, executions in found.items()}
    return Cost(iterations, size, seconds["native"], seconds["sampled"], seconds["exact"],
                all(e.same_result(first) for executions in found.values() for e in executions),
                _as_in_the_source(folder / "exact.db", iterations, size))


def _profile(command: Sequence[str], path: Path, options: Sequence[str]) -> Execution:
    return run([*memopt_command(), "profile", *options, "-o", str(path), "--quiet", "--", *command], _PATIENCE_S)


def _watched(program: Path, folder: Path, option: str, iterations: int, size: int) -> str:
    command, path = (str(program), str(iterations), str(size)), folder / f"watched{option}{size}.db"
    native, watched = run(command, _PATIENCE_S), _profile(command, path, (option,))
    (row,) = ask(path, "SELECT sum(words) AS words, (SELECT count(*) FROM dependence) AS found FROM watched")
    words = int(row["words"])
    return (f"{option} ({size} x {size + 1} x {size + 2}, {iterations} iterations): native {native.seconds:.2f} s, "
            f"watched {watched.seconds:.1f} s, "
            f"{watched.seconds / native.seconds:.0f} times as long; {words / 1e6:.0f} million words of trace, "
            f"{words / 1e6 / watched.seconds:.1f} million a second; {row['found']} dependences; "
            f"{'identical' if watched.same_result(native) else 'DIFFERENT'}")


def _as_in_the_source(path: Path, iterations: int, n: int) -> bool:
    """Whether the profile has the entries of functions, and the iterations of their loops by depth, that the source
    implies for ``n`` and ``iterations``."""
    points, inner = n * (n + 1) * (n + 2), (n - 2) * (n - 1) * n
    entries = {row["function"]: row["entries"] for row in ask(path, "counted-functions")}
    rounds = {(row["function"], row["depth"]): row["iterations"] for row in ask(path, """
        SELECT f.name AS function, l.depth, sum(x.iterations) AS iterations FROM context_loop x
        JOIN loop l ON l.id = x.loop JOIN function f ON f.id = l.function GROUP BY f.id, l.depth""")}
    expected_entries = {
        "exact_solution": 6 * points, "solve": 2 * iterations * inner, "lower_jacobian": iterations * n,
        "upper_jacobian": iterations * n, "lower_sweep": iterations * n, "upper_sweep": iterations * n,
        "right_side": iterations + 1, "update": iterations, "residual_norm": iterations // 4, "initialise": 1}
    expected_rounds = {
        ("initialise", 1): n + 2, ("initialise", 2): (n + 1) * (n + 2), ("initialise", 3): points,
        ("right_side", 3): (iterations + 1) * inner, ("right_side", 4): (iterations + 1) * inner * _FIELDS,
        ("lower_jacobian", 2): iterations * inner, ("upper_sweep", 2): iterations * inner,
        ("lower_sweep", 4): iterations * inner * _FIELDS ** 2, ("iterate", 1): iterations,
        ("iterate", 2): 2 * iterations * n}
    return all(entries.get(name) == count for name, count in expected_entries.items()) and all(
        rounds.get(key) == count for key, count in expected_rounds.items())


def _against_callgrind(program: Path, folder: Path) -> str:
    if not callgrind.installed():
        return "callgrind is not installed"
    command = (str(program), *map(str, _SMALLEST))
    _profile(command, folder / "small.db", ("--exact",))
    (row,) = ask(folder / "small.db", "SELECT sum(instructions) AS sum FROM execution")
    theirs, ours = callgrind.instructions(command, _PATIENCE_S).total(), int(row["sum"])
    return f"instructions: {ours:,}, by callgrind {theirs:,}: {100 * (ours / theirs - 1):+.4f} %"


if __name__ == "__main__":
    sys.exit(main())
