"""One run of a program of the table: built, run under memopt and judged.

Example: ``judged(fault, built(fault, folder))`` is an ``Outcome``: ``wrong`` says how the run differed from what is
right; ``in_place`` whether new code was there when the program did what could go wrong; ``refused`` the reasons for
which memopt left loops alone.
"""

from __future__ import annotations

import re
import signal
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bench.measure.execution import Execution
from tests.support.faults.table import Fault, Made
from tests.support.faults.ways import NO, WAYS, YES, natively

SOURCES = Path(__file__).resolve().parents[2] / "programs" / "faults"


@dataclass(frozen=True, slots=True)
class Outcome:
    """``wrong``: "" where the run was right. ``edge``: it was wrong in a way that the README excludes."""

    wrong: str
    in_place: bool
    refused: tuple[str, ...]
    seconds: float
    edge: bool = False

    def passes(self, fault: Fault) -> bool:
        """Right with new code in place, or left alone for a reason that is allowed."""
        if self.wrong and not self.edge:
            return False
        allowed = {r.value for r in fault.refusals}
        return not fault.witnessed or self.in_place or bool(allowed.intersection(self.refused))


def built(fault: Fault, folder: Path) -> tuple[str, ...]:
    """The command that runs the program. Precondition: one way to build it, one number of processors."""
    made, = fault.made
    cpus, = fault.cpus
    program, libraries = _compiled(fault.name, made, folder)
    pinned = ("taskset", "-c", ",".join(map(str, range(cpus)))) if cpus else ()
    return (*pinned, str(program), *map(str, libraries), *fault.arguments)


@cache
def _compiled(name: str, made: Made, folder: Path) -> tuple[Path, tuple[Path, ...]]:
    place = folder / re.sub(r"\W+", "_", f"{name} {made.name}")
    place.mkdir(parents=True, exist_ok=True)
    plug_in = SOURCES / f"{made.plug_in}.c"
    libraries = []
    for number, flags in enumerate(made.libraries):
        libraries.append(place / f"{number}.so")
        _compile(made, "-shared", "-fPIC", *flags, "-o", libraries[-1], plug_in)
    linked: tuple[object, ...] = ()
    if made.linked:
        library = place / "linked.so"
        _compile(made, "-shared", "-fPIC", *made.linked, "-o", library, plug_in)
        linked = (library,)
    program = place / name
    _compile(made, "-pthread", *made.flags, "-o", program, SOURCES / f"{name}.c", *linked, "-lm")
    return program, tuple(libraries)


def _compile(made: Made, *words: object) -> None:
    subprocess.run([made.compiler, made.level, "-w", *map(str, words)], check=True)


@cache
def native(fault: Fault, command: tuple[str, ...]) -> bytes:
    """What the program prints natively. Raises ``AssertionError`` where that is not what the table says is right."""
    if fault.way == "undo":
        return fault.right.encode()
    done = natively(command)
    assert done.exit_code == fault.exit_code, (fault.name, done)
    assert not fault.right or done.stdout.decode() == fault.right, (fault.name, done.stdout)
    return done.stdout


def judged(fault: Fault, command: tuple[str, ...]) -> Outcome:
    """One run of ``command`` under memopt."""
    right = native(fault, command)
    done = WAYS[fault.way](command)
    seen = [line for line in done.stderr.splitlines() if line in (YES, NO)]
    refused = tuple(x["reason"] for x in (done.report or {"loops": []})["loops"] if x["reason"])
    wrong = _difference(fault, right, done)
    edge = bool(fault.edge) and done.exit_code is not None and done.exit_code >= 0 and (
        re.fullmatch(fault.edge, done.stdout.decode()) is not None)
    return Outcome(wrong, seen[:1] == [YES], refused, done.seconds, edge)


def _difference(fault: Fault, right: bytes, done: Execution) -> str:
    if done.exit_code is None:
        return "never ends"
    if done.exit_code != fault.exit_code:
        code = done.exit_code
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"
    if done.stdout != right:
        return f"{done.stdout.decode(errors='replace')!r} instead of {right.decode()!r}"
    inside = [line for line in done.stderr.splitlines() if "internal error" in line or "please report" in line]
    if inside:
        return inside[0]
    if fault.way == "profile" and not (done.report or {}).get("contexts"):
        return "the profile is empty"
    if fault.least_runs and sum(x["runs"] for x in done.replaced) < fault.least_runs:
        return f"new code was entered {sum(x['runs'] for x in done.replaced)} times"
    return ""
