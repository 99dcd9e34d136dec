"""Time tiling beside the memory bandwidth: the suite's 2-D Jacobi on arrays of four times the last-level cache.

Without time tiling, a loop moves 24 bytes of memory per point, however good its code: it reads the old value, fetches
the cache line of the new value before it writes it, and writes it back; neighbours come from a cache. A triad on arrays
of the same size, measured in the same run, moves 32 bytes per element. Its rate gives the most points per second of any
loop that passes over the arrays once per time step.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.cells import BUILDS, MAIN_BUILD, REFERENCES, steady
from bench.measure.execution import Execution, median, run, run_under_memopt
from bench.programs.families import KERNELS
from bench.programs.variants import KERNELS as FOLDER
from bench.programs.variants import compile_c
from memopt.machine.description import Machine

_STEPS, _REPETITIONS = 12, 16
_SWEEPS = 2 * _STEPS  # each step computes B from A, then A from B
_BYTES_PER_POINT, _BYTES_PER_TRIAD = 24, 32


@dataclass(frozen=True, slots=True)
class Streaming:
    """The result: rates in points per second."""

    size: int
    runs: int
    identical: bool
    native: float
    memopt: float | None
    limit: float  # the most that memory allows a loop without time tiling

    def to_json(self) -> dict[str, Any]:
        """A dictionary that JSON can hold."""
        return asdict(self)


def jacobi(machine: Machine, isa: str, runs: int, folder: Path) -> Streaming:
    """Runs the Jacobi natively (gcc -O2), under memopt, and the triad, ``runs`` times in turn."""
    footprint = 4 * machine.levels[-1].size
    size = math.isqrt(footprint // 16) | 1
    program = BUILDS[MAIN_BUILD].compile(KERNELS["jacobi_2d"], folder)
    triad = folder / "triad"
    compile_c((REFERENCES["ref-gcc"].compilers["C"], *REFERENCES["ref-gcc"].flags), FOLDER / "triad.c", triad, [])
    command = (str(program), str(_REPETITIONS), str(size), str(_STEPS))
    natives: list[Execution] = []
    trials: list[Execution] = []
    elements: list[float] = []
    for _ in range(runs):
        natives.append(run(command, 600))
        trials.append(run_under_memopt(command, 600, ("--isa", isa)))
        elements.append(float(run((str(triad), "5", str(footprint // 24)), 600).stdout))
    points = _SWEEPS * (size - 2) ** 2
    native = median([step for n in natives for step in n.steps])
    trial = median([steady(t.steps) for t in trials])
    assert native is not None
    return Streaming(
        size, runs, all(t.same_result(natives[0]) for t in (*natives, *trials)), points / native,
        points / trial if trial else None, max(elements) * _BYTES_PER_TRIAD / _BYTES_PER_POINT,
    )
