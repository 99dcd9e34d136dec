"""A batch run natively and with its loops replaced, and the two held against each other."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from memopt.machine.description import CacheLevel, Machine
from memopt.machine.detect import detect
from memopt.session.rewriting.training import Trained
from runtime.target.ptrace import WaitTimeout
from tests.support.random_nests.build import Batch, build
from tests.support.random_nests.files import held, rewritten
from tests.support.random_nests.program import Program
from tests.support.random_nests.replacing import REPLACED, Follower, LoopResult

_PATIENCE = 400.0
_LINE = re.compile(r"^(\d+) (\d+) ([0-9a-f]{16} [0-9a-f]{4} [0-9a-f]{16})$", re.MULTILINE)


@dataclass
class Checked:
    """``wrong``: how the two runs differ, "" when they do not. ``internal``: tracebacks of failures inside."""

    program: Program
    loops: list[LoopResult] = field(default_factory=list)
    wrong: str = ""
    internal: list[str] = field(default_factory=list)
    in_file: int = 0  # runs of its versions in the new file

    @property
    def replaced(self) -> bool:
        """Whether replaced code ran."""
        return any(x.reason == REPLACED and x.iterations for x in self.loops)

    @property
    def reason(self) -> str:
        """REPLACED, or why the first loop was kept."""
        if self.replaced:
            return REPLACED
        return next((x.reason if x.reason != REPLACED else "never entered" for x in self.loops), "no loop")


def machines() -> tuple[Machine, Machine]:
    """This machine, and the same with caches so small that tiny nests are tiled."""
    real = detect()
    tiny = tuple(CacheLevel(c.name, c.level, size, c.line, 2, 1)
                 for c, size in zip(real.levels, (2 << 10, 8 << 10, 64 << 10), strict=False))
    return real, Machine(tiny, real.page_size, real.extensions, real.xcr0, real.model, real.cores, real.frequency)


def check(programs: Sequence[Program], *, files: bool = False) -> list[Checked]:
    """All programs, in their order; position-independent or not, in separate executables. ``files``: the versions are
    written into a new file, too, which runs natively (tests.support.random_nests.files)."""
    found: dict[int, Checked] = {}
    for pie in (True, False):
        some = [p for p in programs if p.build.pie is pie]
        if some:
            with tempfile.TemporaryDirectory(prefix="nests-") as folder:
                batch = build(some, Path(folder))
                found |= {c.program.seed: c for c in _check(batch, Path(folder), files)}
    return [found[p.seed] for p in programs]


def _check(batch: Batch, folder: Path, files: bool) -> list[Checked]:
    native = _native(batch)
    results = [Checked(p) for p in batch.programs]
    both = machines()
    first, versions = 0, dict[int, list[Trained]]()
    while first < len(results):
        lines, loops, end, last, kept = _traced(batch, first, folder, both, results, movable=files)
        for number in range(first, last):
            results[number].loops = loops.get(number, [])
            results[number].wrong = _difference(native, lines, batch.programs[number])
            versions[number] = kept.get(number, [])
        if end:  # it did not get past program number ``last``
            results[last].loops = loops.get(last, [])
            results[last].wrong = f"{end} instead of {_outcome(native, batch.programs[last])}"
            last += 1
        first = last
    if files:
        _check_file(batch, folder, native, versions, results)
    return results


def _check_file(batch: Batch, folder: Path, native: Lines, versions: dict[int, list[Trained]],
                results: list[Checked]) -> None:
    new = rewritten(batch, versions, folder)
    if new is None:
        return
    output, runs = held(new, len(batch.programs))
    lines = _lines(output)
    for number, result in enumerate(results):
        result.in_file = runs.get(number, 0)
        if not result.wrong and (difference := _difference(native, lines, batch.programs[number])):
            result.wrong = f"in the file: {difference}"


Lines = dict[tuple[int, int], str]


def _lines(text: str) -> Lines:
    return {(int(seed), int(call)): rest for seed, call, rest in _LINE.findall(text)}


def _native(batch: Batch) -> Lines:
    """Raises ``RuntimeError`` when a program fails without memopt: a fault of the generator."""
    done = subprocess.run([batch.path, "0", str(len(batch.programs)), "native"], capture_output=True, text=True,
                          timeout=_PATIENCE, check=False)
    lines = _lines(done.stdout)
    if done.returncode:
        seed = max(((s, c) for s, c in lines), default=(-1, -1), key=lambda x: list(lines).index(x))
        raise RuntimeError(f"natively: status {done.returncode} behind call {seed[1]} of program {seed[0]}")
    return lines


def _traced(batch: Batch, first: int, folder: Path, both: tuple[Machine, Machine], results: list[Checked], *,
            movable: bool) -> tuple[Lines, dict[int, list[LoopResult]], str, int, dict[int, list[Trained]]]:
    """Lines printed, loops by program, how it ended ("" for well), the program at which it ended, versions for a file
    by program."""
    output = folder / "traced.out"
    with open(output, "wb") as stdout:
        process = subprocess.Popen([batch.path, str(first), str(len(batch.programs)), "traced"], stdin=subprocess.PIPE,
                                   stdout=stdout, stderr=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stderr is not None
    process.stderr.read(1)

    def internal(number: int, error: BaseException) -> None:
        results[number].internal.append("".join(traceback.format_exception(error)))

    follower = Follower(batch, first, process.pid, both, internal, movable=movable)
    process.stdin.write(b"g")
    process.stdin.flush()
    try:
        status = follower.follow()
        process.returncode = os.waitstatus_to_exitcode(status)
        end = "" if status == 0 else _status(status)
    except WaitTimeout:
        follower.kill()
        process.wait()
        end = "endless"
    finally:
        process.stdin.close()
        process.stderr.close()
    return (_lines(output.read_text()), follower.results, end,
            follower.number if end else len(batch.programs), follower.kept)


def _status(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _outcome(lines: Lines, program: Program) -> str:
    return f"{sum((program.seed, c) in lines for c in range(len(program.calls)))} calls"


def _difference(native: Lines, traced: Lines, program: Program) -> str:
    for call in range(len(program.calls)):
        one, two = native[program.seed, call], traced.get((program.seed, call), "nothing printed")
        if one != two:
            parts = zip(("memory", "flags", "result"), one.split(), two.split(), strict=False)
            names = [f"{name} {a} {b}" for name, a, b in parts if a != b]
            return f"call {call}: {', '.join(names)}"
    return ""
