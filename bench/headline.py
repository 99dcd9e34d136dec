"""The main figures of README.md: large matrix products beside OpenBLAS, the time to install, the cost without a gain.

The cost is that of memopt for programs that have nothing to gain: sort, a Python script, integer code. Native runs and
runs under memopt alternate, so that a change of the machine's speed affects both. Figures are medians.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.matrix import Row, first, ratio, summarise
from bench.measure import blas
from bench.measure.execution import Execution, median, run, run_under_memopt
from bench.programs.variants import COMPILERS, VARIANTS, compile_c, compile_kernel

_PROGRAMS = Path(__file__).resolve().parent.parent / "tests" / "programs"
_INSTALL_RUNS = 7
_SORT_LINES = 3_000_000
_SCRIPT = """
counts = {}
x = 1
for i in range(6_000_000):
    x = (x * 1103515245 + 12345) % 2147483648
    counts[x % 1009] = counts.get(x % 1009, 0) + 1
print(sorted(counts.items())[:3], x)
"""


@dataclass(frozen=True, slots=True)
class Overhead:
    """The cost of memopt for a program that has nothing to gain. Times are seconds of whole processes."""

    program: str
    busy: bool  # all processors were kept busy by other processes
    runs: int
    identical: bool
    native_seconds: float
    memopt_seconds: float

    @property
    def excess(self) -> float:
        """How much later than native the program ended."""
        return self.memopt_seconds - self.native_seconds

    @property
    def allowed(self) -> float:
        """The excess that memopt promises not to exceed: 2 % and a tenth of a second."""
        return 0.02 * self.native_seconds + 0.1

    def to_json(self) -> dict[str, Any]:
        """A dictionary that JSON can hold."""
        return {
            "program": self.program, "busy": self.busy, "runs": self.runs, "identical": self.identical,
            "native_seconds": self.native_seconds, "memopt_seconds": self.memopt_seconds, "excess": self.excess,
            "allowed": self.allowed,
        }


def large_product(name: str, size: int, isa: str, runs: int, folder: Path) -> tuple[Row, float | None]:
    """The result of variant ``name`` with gcc -O2 at ``size``, and GFLOP/s of OpenBLAS, measured between its runs."""
    variant = VARIANTS[name]
    program = compile_kernel(variant, "gcc-O2", "plain", size, folder)
    command = (str(program), *variant.arguments(size))
    natives, trials, yardstick = [], [], []
    for _ in range(runs):
        natives.append(run(command, timeout=3600))
        trials.append(run_under_memopt(command, 3600, ("--isa", isa)))
        yardstick.append(blas.gflops(size, variant.real))
    return summarise(variant, "gcc-O2", "plain", isa, size, natives, trials), median(yardstick)


def time_to_install(isa: str, folder: Path, *, again: bool = False) -> list[float]:
    """Seconds from launch to installation for variant a, n = 2048: one for each run in which code was installed.

    ``again``: runs after a first one, whose plan they take; its cache is this function's own."""
    variant = VARIANTS["a"]
    program = compile_kernel(variant, "gcc-O2", "plain", 2048, folder)

    def trial() -> Execution:
        return run_under_memopt((str(program), "2048"), 600, ("--isa", isa), cache=again)

    with _own_cache() if again else contextlib.nullcontext():
        trials = [trial() for _ in range(_INSTALL_RUNS + again)][again:]
    return [seconds for t in trials if (seconds := first(t, "installed_after_seconds")) is not None]


@contextlib.contextmanager
def _own_cache() -> Iterator[None]:
    """A context in which memopt's cache is an empty folder."""
    before = os.environ.get("XDG_CACHE_HOME")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        try:
            yield
        finally:
            os.environ.pop("XDG_CACHE_HOME")
            if before is not None:
                os.environ["XDG_CACHE_HOME"] = before


def overheads(runs: int, folder: Path) -> Iterator[Overhead]:
    """Costs for each program that has nothing to gain, on an idle machine and with all processors busy."""
    programs = _programs(folder)
    for busy in (False, True):
        for name, command in programs.items():
            with _busy_processors(busy, folder):
                yield _overhead(name, command, busy, runs)


def _overhead(name: str, command: tuple[str, ...], busy: bool, runs: int) -> Overhead:
    natives: list[Execution] = []
    trials: list[Execution] = []
    for number in range(runs):
        for memopt in (number % 2 == 0, number % 2 == 1):
            if memopt:
                trials.append(run_under_memopt(command, 600))
            else:
                natives.append(run(command, 600))
    return Overhead(
        name, busy, runs, all(t.same_result(natives[0]) for t in (*trials, *natives)),
        median([n.seconds for n in natives]) or 0.0, median([t.seconds for t in trials]) or 0.0,
    )


def _programs(folder: Path) -> dict[str, tuple[str, ...]]:
    integer = folder / "busy_integer"
    compile_c(COMPILERS["gcc-O2"], _PROGRAMS / "busy_integer.c", integer, [])
    text = folder / "lines.txt"
    if not text.exists():
        state = 1
        with open(text, "w") as stream:
            for _ in range(_SORT_LINES):
                state = state * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
                stream.write(f"{state:016x} {state % 977}\n")
    script = folder / "script.py"
    script.write_text(_SCRIPT)
    return {
        "sort of a large file": ("sort", str(text)),
        "a Python script": (sys.executable, str(script)),
        "a busy integer program": (str(integer), "6"),
    }


@contextlib.contextmanager
def _busy_processors(busy: bool, folder: Path) -> Iterator[None]:
    """Runs one spinning process for each processor during the ``with`` block, if ``busy``."""
    command = [str(folder / "busy_integer"), "1000000"]
    count = os.cpu_count() or 1
    spinners = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(count if busy else 0)]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


def product_record(row: Row, blas_gflops: float | None) -> dict[str, Any]:
    """The JSON record of a product: the row, OpenBLAS's rate, and the time cut: 1 - memopt / native, whole process."""
    cut = 1 - 1 / row.process_speedup if row.process_speedup else None
    return {**row.to_json(), "openblas_gflops": blas_gflops, "openblas_ratio": ratio(row.gflops, blas_gflops),
            "time_cut": cut}
