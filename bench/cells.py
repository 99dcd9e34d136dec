"""One cell of the suite: a kernel in one build, natively and under memopt in turn, and what is remembered of it.

The steady state is the median of the last third of the repetitions, at least two: by then what memopt has found is
installed. A native run has no such phases; its figure is the median of all repetitions.
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
_LEAST_SECONDS = {"quick": 2.5, "full": 10.0}  # of a native run; faster builds repeat more often
_HARNESS = ("fill_", "hash_", "observe_", "report_", "suite_")  # functions of suite.h, not of a kernel


@dataclass(frozen=True, slots=True)
class Build:
    """``compilers``: by language. ``others``: the languages other than C are of the suite with this build, too."""

    name: str
    compilers: Mapping[str, str]
    flags: tuple[str, ...]
    others: bool = False

    def applies(self, kernel: Kernel) -> bool:
        return kernel.language == "C" or (self.others and kernel.language in self.compilers)

    def compile(self, kernel: Kernel, folder: Path) -> Path:
        """The program, built in ``folder`` unless it is there and younger than its sources. Raises ``BuildError``."""
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
COUNTED = tuple(name for name in BUILDS if name != "gcc-O3-native")  # AVX-512 input is rejected by name today
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
    """``reason``: the code of the hottest loop kept, "" when nothing was kept or looked at; ``detail``: the words
    behind it, or what went wrong. ``loops``: what memopt reported of each. ``native_hash``: of the native output.
    Seconds of a repetition are called ``step``; those of a process, ``seconds``."""

    kernel: str
    build: str
    mode: str
    replaced: bool = False
    identical: bool = False
    reason: str = ""
    detail: str = ""
    native_seconds: float | None = None
    native_step: float | None = None
    memopt_seconds: float | None = None
    memopt_step: float | None = None
    fast_step: float | None = None
    fast_replaced: bool = False
    installed_after: float | None = None
    installed_after_first_sample: float | None = None
    repetitions: int = 0
    native_hash: str = ""
    command: str = ""
    loops: list[dict[str, Any]] = field(default_factory=list)
    stages: dict[str, float] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        return self.kernel, self.build

    @property
    def speedup(self) -> float | None:
        """Native over memopt, one repetition in the steady state."""
        return self.native_step / self.memopt_step if self.native_step and self.memopt_step else None

    @property
    def late(self) -> bool:
        """Installed so late that the steady state is of both codes."""
        return bool(self.installed_after and self.memopt_seconds and self.installed_after > 0.6 * self.memopt_seconds)

    @property
    def process_speedup(self) -> float | None:
        return self.native_seconds / self.memopt_seconds if self.native_seconds and self.memopt_seconds else None

    @property
    def too_slow(self) -> bool:
        """Against the promise that no process is slower than native by more than 2 % and a tenth of a second."""
        if self.native_seconds is None or self.memopt_seconds is None:
            return False
        return self.memopt_seconds > 1.02 * self.native_seconds + 0.1

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Cell:
        known = {f.name for f in fields(Cell)}
        return Cell(**{name: x for name, x in value.items() if name in known})


def run_cell(kernel: Kernel, build: Build, quick: bool, runs: int, fast: bool, folder: Path,
             options: Sequence[str] = ()) -> Cell:
    """Native and memopt ``runs`` times in turn; with ``fast``, once more under ``--fp fast``."""
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
    """The same source from another compiler, natively."""
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
    """``command``, with as many repetitions as fill ``seconds``."""
    rest = max(0.0, native.seconds - sum(native.steps))
    repetitions = max(len(native.steps), round((seconds - rest) / max(median(native.steps) or 0.0, 1e-6)))
    return (command[0], str(repetitions))


def summarise(kernel: Kernel, build: Build, mode: str, command: Sequence[str], natives: Sequence[Execution],
              trials: Sequence[Execution], fasts: Sequence[Execution] = ()) -> Cell:
    """``identical`` only when every run was; ``replaced`` only when replaced code of the kernel ran in every run."""
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
    """The median of the last third, at least two of at least three."""
    return median(steps[-max(2, len(steps) // 3):]) if len(steps) > 2 else None


def kernel_loops(trial: Execution, kernel: Kernel) -> list[dict[str, Any]]:
    """What memopt reported of the loops of the kernel, hottest first. Those of the harness do not count; ``main``,
    into which compilers put it, counts for an affine kernel, the time loop of which may stand there."""
    loops = trial.report["loops"] if trial.report else []
    return [x for x in loops if not str(x["function"] or "").startswith(_HARNESS)
            and (kernel.affine or x["function"] != "main")]


def _ran(trial: Execution, kernel: Kernel) -> bool:
    return any(x["outcome"] == "replaced" and x.get("iterations_run") for x in kernel_loops(trial, kernel))


def _installed(trial: Execution, kernel: Kernel, key: str) -> float | None:
    """When the first version of the kernel's loops was there."""
    return min((x[key] for x in kernel_loops(trial, kernel) if x.get(key) is not None), default=None)


def _failure(wrong: Execution, native: Execution) -> str:
    if wrong.exit_code is None:
        return "time was up"
    if wrong.exit_code != native.exit_code:
        return f"exit code {wrong.exit_code} for {native.exit_code}"
    return "other output"
