"""One cell of the suite: one kernel in one build, natively and under memopt in turn, and its result ``Cell``.

A kernel repeats its computation and prints the seconds of each repetition. The steady state under memopt is the median
of the last third of the repetitions, at least two: by then memopt has installed its new code. A native run has no such
phases: its figure is the median of all repetitions.

In: ``Kernel``, ``Build``. Out: ``Cell``, which converts to JSON and back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from bench.measure.execution import Execution, median, run, run_under_memopt
from bench.programs.families import Kernel
from bench.programs.variants import KERNELS, BuildError
from memopt.ir.reasons import Reason

_GCC = {"C": "gcc", "C++": "g++", "Fortran": "gfortran"}
_CLANG = {"C": "clang", "C++": "clang++"}
_POLLY = {"C": "clang-19", "C++": "clang++-19"}
_LEAST_SECONDS = {"quick": 2.5, "full": 10.0}  # shortest native run; faster builds repeat their computation more often
_HARNESS = ("fill_", "hash_", "observe_", "report_", "suite_")  # names of functions of suite.h begin so


@dataclass(frozen=True, slots=True)
class Build:
    """A compiler with its flags."""

    name: str
    compilers: Mapping[str, str]  # by language
    flags: tuple[str, ...]
    others: bool = False  # kernels in languages other than C are built, too

    def applies(self, kernel: Kernel) -> bool:
        """Whether the suite has a cell for ``kernel`` in this build."""
        return kernel.language == "C" or (self.others and kernel.language in self.compilers)

    def compile(self, kernel: Kernel, folder: Path) -> Path:
        """Builds the program in ``folder``, unless it is there and younger than its sources. Returns its path. Raises
        ``BuildError``."""
        if kernel.language not in self.compilers:
            raise BuildError(f"no compiler of {kernel.language} for {self.name}")
        output = folder / f"{kernel.name}-{self.name}"
        sources = (KERNELS / kernel.source, KERNELS / (kernel.library or kernel.source), *KERNELS.glob("suite*"))
        if not (output.exists() and all(output.stat().st_mtime > s.stat().st_mtime for s in sources)):
            kernel.compile((self.compilers[kernel.language], *self.flags), output)
        return output


BUILDS = {
    b.name: b
    for b in (
        Build("gcc-O1", _GCC, ("-O1",)),
        Build("gcc-O2", _GCC, ("-O2",), others=True),
        Build("gcc-O3", _GCC, ("-O3",)),
        Build("gcc-O3-haswell", _GCC, ("-O3", "-march=haswell")),
        Build("clang-O2", _CLANG, ("-O2",)),
        Build("clang-O3", _CLANG, ("-O3",)),
        Build("gcc-O3-native", _GCC, ("-O3", "-march=native")),
    )
}
MAIN_BUILD = "gcc-O2"
COUNTED = tuple(name for name in BUILDS if name != "gcc-O3-native")  # memopt does not lift AVX-512 code yet
REFERENCES = {
    b.name: b
    for b in (
        Build("ref-gcc", _GCC, ("-O3", "-march=native"), others=True),
        Build("ref-polly", _POLLY, ("-O3", "-march=native", "-mllvm", "-polly", "-mllvm",
                                    "-polly-vectorizer=stripmine"), others=True),
    )
}


@dataclass(frozen=True, slots=True)
class Cell:
    """The result of one cell. ``..._seconds`` is the wall time of a whole process, ``..._step`` that of one repetition.
    """

    kernel: str
    build: str
    mode: str  # "quick" or "full"
    replaced: bool = False  # new code of the kernel ran in every run
    identical: bool = False  # all outputs were the same
    reason: str = ""  # Reason.value of the hottest loop that was left alone, "" without one
    detail: str = ""  # the detail of that reason, or a description of the failure
    native_seconds: float | None = None
    native_step: float | None = None
    memopt_seconds: float | None = None
    memopt_step: float | None = None
    fast_step: float | None = None
    fast_replaced: bool = False
    installed_after: float | None = None
    installed_after_first_sample: float | None = None
    repetitions: int = 0
    native_hash: str = ""  # of the native output
    command: str = ""
    loops: list[dict[str, Any]] = field(default_factory=list)  # the kernel's loops in memopt's JSON report
    stages: dict[str, float] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """Identifies the cell in a result file."""
        return self.kernel, self.build

    @property
    def speedup(self) -> float | None:
        """Native seconds of a repetition, divided by those under memopt in the steady state."""
        return self.native_step / self.memopt_step if self.native_step and self.memopt_step else None

    @property
    def late(self) -> bool:
        """Whether the new code was installed so late that the steady state holds repetitions of the old code."""
        return bool(self.installed_after and self.memopt_seconds and self.installed_after > 0.6 * self.memopt_seconds)

    @property
    def process_speedup(self) -> float | None:
        """Native seconds of the whole process, divided by those under memopt."""
        return self.native_seconds / self.memopt_seconds if self.native_seconds and self.memopt_seconds else None

    @property
    def too_slow(self) -> bool:
        """Whether the process breaks the promise: not slower than native by more than 2 % and a tenth of a second."""
        if self.native_seconds is None or self.memopt_seconds is None:
            return False
        return self.memopt_seconds > 1.02 * self.native_seconds + 0.1

    def to_json(self) -> dict[str, Any]:
        """A dictionary that JSON can hold."""
        return asdict(self)

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Cell:
        """The cell of ``to_json``. Keys that are unknown today, from older result files, are ignored."""
        known = {f.name for f in fields(Cell)}
        return Cell(**{name: x for name, x in value.items() if name in known})


def run_cell(kernel: Kernel, build: Build, quick: bool, runs: int, fast: bool, folder: Path,
             options: Sequence[str] = ()) -> Cell:
    """Runs a cell: natively and under memopt, ``runs`` times in turn; with ``fast`` once more under ``--fp fast``."""
    mode = "quick" if quick else "full"
    try:
        command = _command(kernel, build, quick, folder)
    except BuildError as error:
        return Cell(kernel.name, build.name, mode, detail=str(error))
    natives: list[Execution] = []
    trials: list[Execution] = []
    for _ in range(runs):
        natives.append(run(command, 600))
        if len(natives) == 1 and natives[0].steps and natives[0].seconds < 0.9 * _LEAST_SECONDS[mode]:
            command = longer(command, natives[0], _LEAST_SECONDS[mode])
            natives = [run(command, 600)]
        trials.append(run_under_memopt(command, 60 + 5 * natives[0].seconds, options))
    fasts = [run_under_memopt(command, 60 + 5 * natives[0].seconds, (*options, "--fp", "fast"))] if fast else []
    return summarise(kernel, build, mode, command, natives, trials, fasts)


def run_reference(kernel: Kernel, build: Build, quick: bool, runs: int, folder: Path) -> Cell:
    """Runs the same source from a reference compiler, natively."""
    mode = "quick" if quick else "full"
    try:
        command = _command(kernel, build, quick, folder)
    except BuildError as error:
        return Cell(kernel.name, build.name, mode, detail=str(error))
    natives = [run(command, 600) for _ in range(runs)]
    return Cell(kernel.name, build.name, mode, **_native(natives), command=" ".join(command))


def _command(kernel: Kernel, build: Build, quick: bool, folder: Path) -> tuple[str, ...]:
    program = str(build.compile(kernel, folder))
    return (program, str(kernel.quick)) if quick else (program,)


def longer(command: Sequence[str], native: Execution, seconds: float) -> tuple[str, ...]:
    """``command`` with so many repetitions that it runs for ``seconds``, computed from the run ``native``."""
    rest = max(0.0, native.seconds - sum(native.steps))
    repetitions = max(len(native.steps), round((seconds - rest) / max(median(native.steps) or 0.0, 1e-6)))
    return (command[0], str(repetitions))


def summarise(kernel: Kernel, build: Build, mode: str, command: Sequence[str], natives: Sequence[Execution],
              trials: Sequence[Execution], fasts: Sequence[Execution] = ()) -> Cell:
    """The cell of these runs. It is ``identical`` only if every run is, and ``replaced`` only if new code of the kernel
    ran in every run."""
    wrong = next((t for t in (*trials, *natives) if not t.same_result(natives[0])), None)
    loops = kernel_loops(trials[0], kernel)
    kept = [x for x in loops if x["outcome"] != "replaced"]
    report = trials[0].report or {}
    detail = _failure(wrong, natives[0]) if wrong else "" if loops else trials[0].reason()
    reason = str(kept[0]["reason"]) if kept else str(report.get("reason") or "")
    if not detail and kept:
        detail = str(kept[0].get("detail") or "")
    if loops and not kept and not _ran(trials[0], kernel):
        reason, detail = Reason.ENDED.value, detail or "installed, and not entered after that"
    return Cell(
        kernel.name, build.name, mode,
        replaced=all(_ran(t, kernel) for t in trials),
        identical=wrong is None and natives[0].exit_code == 0,
        reason=reason,
        detail=detail,
        **_native(natives),
        memopt_seconds=median([t.seconds for t in trials]),
        memopt_step=median([steady(t.steps) for t in trials]),
        fast_step=median([steady(t.steps) for t in fasts]),
        fast_replaced=bool(fasts) and all(_ran(t, kernel) for t in fasts),
        installed_after=median([_installed(t, kernel, "installed_after_seconds") for t in trials]),
        installed_after_first_sample=median(
            [_installed(t, kernel, "installed_after_first_sample_seconds") for t in trials]),
        command=" ".join(command),
        loops=loops,
        stages=report.get("stages", {}),
    )


def _native(natives: Sequence[Execution]) -> dict[str, Any]:
    return {
        "native_seconds": median([n.seconds for n in natives]),
        "native_step": median([step for n in natives for step in n.steps]),
        "repetitions": len(natives[0].steps),
        "native_hash": hashlib.sha256(natives[0].stdout).hexdigest()[:16],
    }


def steady(steps: Sequence[float]) -> float | None:
    """The median of the last third of ``steps``, at least two; None for fewer than three steps."""
    return median(steps[-max(2, len(steps) // 3):]) if len(steps) > 2 else None


def kernel_loops(trial: Execution, kernel: Kernel) -> list[dict[str, Any]]:
    """The kernel's loops in memopt's report, hottest first.

    Loops of the harness are left out. Loops in ``main`` count only for an affine kernel, whose time loop may stand
    there: compilers inline the harness into ``main``, too.
    """
    loops = trial.report["loops"] if trial.report else []
    return [x for x in loops if not str(x["function"] or "").startswith(_HARNESS)
            and (kernel.affine or x["function"] != "main")]


def _ran(trial: Execution, kernel: Kernel) -> bool:
    return any(x["outcome"] == "replaced" and x.get("iterations_run") for x in kernel_loops(trial, kernel))


def _installed(trial: Execution, kernel: Kernel, key: str) -> float | None:
    """The time ``key`` of the first version that was installed for the kernel's loops."""
    return min((x[key] for x in kernel_loops(trial, kernel) if x.get(key) is not None), default=None)


def _failure(wrong: Execution, native: Execution) -> str:
    if wrong.exit_code is None:
        return "time was up"
    if wrong.exit_code != native.exit_code:
        return f"exit code {wrong.exit_code} for {native.exit_code}"
    return "other output"
