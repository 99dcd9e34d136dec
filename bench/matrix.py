"""The matrix of matrix products: every variant, compiler, build and instruction set, natively and under memopt in turn.

In: names of variants, compilers, builds and instruction sets. Out: one ``Row`` for each combination.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.measure.execution import Execution, median, run, run_under_memopt
from bench.programs.variants import BuildError, Variant, compile_kernel, parts


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one combination. Seconds are medians over the runs."""

    variant: str
    compiler: str
    build: str
    isa: str
    size: int
    runs: int
    replaced: bool  # in every run
    identical: bool  # in every run
    reason: str = ""  # why the loop was left alone, or what failed
    plan: str = ""
    native_seconds: float | None = None  # whole process
    memopt_seconds: float | None = None  # whole process, memopt's start included
    native_nest_seconds: float | None = None
    speedup: float | None = None  # of the replaced nest: native seconds per outer iteration over those of the version
    process_speedup: float | None = None  # native_seconds over memopt_seconds
    gflops: float | None = None  # of the version
    installed_after_seconds: float | None = None

    def to_json(self) -> dict[str, Any]:
        """A dictionary that JSON can hold."""
        return asdict(self)


def run_cell(variant: Variant, compiler: str, build: str, isas: tuple[str, ...], size: int | None, runs: int,
             folder: Path) -> Iterator[Row]:
    """Runs one program natively and once for each instruction set, in turn, ``runs`` times. Yields a row for each set.
    """
    size = size or (variant.prime_size if "prime" in parts(build) else variant.size)
    try:
        program = compile_kernel(variant, compiler, build, size, folder)
    except BuildError as error:
        yield from (Row(variant.name, compiler, build, isa, size, 0, False, False, str(error)) for isa in isas)
        return
    command = (str(program), *variant.arguments(size))
    natives: list[Execution] = []
    trials: dict[str, list[Execution]] = {isa: [] for isa in isas}
    for _ in range(runs):
        natives.append(run(command, timeout=600))
        for isa in isas:
            trials[isa].append(run_under_memopt(command, 60 + 3 * natives[-1].seconds, ("--isa", isa)))
    for isa in isas:
        yield summarise(variant, compiler, build, isa, size, natives, trials[isa])


def summarise(variant: Variant, compiler: str, build: str, isa: str, size: int, natives: list[Execution],
              trials: list[Execution]) -> Row:
    """The row of one instruction set. It is ``identical`` and ``replaced`` only if every run is."""
    identical = all(t.same_result(natives[0]) for t in (*trials, *natives))
    replaced = all(t.replaced for t in trials)
    reason = next((_exception(t, natives[0]) for t in trials if not t.replaced or not t.same_result(natives[0])), "")
    native_seconds, memopt_seconds = median([n.seconds for n in natives]), median([t.seconds for t in trials])
    nest = median([n.nest_seconds for n in natives])
    before = nest / (size * variant.calls) if nest else None
    after = median([first(t, "seconds_per_iteration_after") for t in trials])
    return Row(
        variant.name, compiler, build, isa, size, len(trials), replaced, identical, reason,
        plan=next((str(t.replaced[0]["plan"]) for t in trials if t.replaced), ""),
        native_seconds=native_seconds,
        memopt_seconds=memopt_seconds,
        native_nest_seconds=nest,
        speedup=ratio(before, after),
        process_speedup=ratio(native_seconds, memopt_seconds),
        gflops=ratio(variant.operations(size) / 1e9, after),
        installed_after_seconds=median([first(t, "installed_after_seconds") for t in trials]),
    )


def _exception(trial: Execution, native: Execution) -> str:
    if trial.exit_code is None:
        return "time was up"
    if trial.exit_code != native.exit_code:
        return f"exit code {trial.exit_code} for {native.exit_code}"
    if trial.stdout != native.stdout:
        return "other output"
    return trial.reason()


def first(trial: Execution, key: str) -> float | None:
    """The figure ``key`` of the hottest replaced loop; None if no loop was replaced."""
    return trial.replaced[0].get(key) if trial.replaced else None


def ratio(over: float | None, under: float | None) -> float | None:
    """``over / under``; None if one of them is unknown or 0."""
    return over / under if over and under else None
