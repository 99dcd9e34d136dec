"""A program with surroundings, run natively twice and under memopt, and compared.

Out: ``Checked``. ``wrong``: how the run under memopt differed. ``unsound``: the program itself is at fault, because its
native runs differ or fail: a fault of the generator. ``acted``: the kinds that found something to do while new code was
in place; a program counts as replaced if one did.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from runtime.patching import perf_map
from tests.support.surroundings.build import build
from tests.support.surroundings.draw import Surrounded

AWAIT = "20"  # seconds for new code to come
NATIVE, HELPED, FACTOR = 120.0, 80.0, 10.0  # seconds for a run; under memopt also so many times what it takes natively
_TOLD = re.compile(r"^(begins|acted) (\S+) (\d)$", re.MULTILINE)


@dataclass
class Checked:
    """The result of one program. ``reasons``: why loops were left alone."""

    seed: int
    build: str
    acts: tuple[str, ...]
    wrong: str = ""
    unsound: str = ""
    acted: tuple[str, ...] = ()
    at: str = ""  # the kind at which it went wrong
    replaced: bool = False
    reasons: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def blamed(self) -> tuple[str, ...]:
        """The kind at which it went wrong; where that was before any of them acted, all its kinds."""
        kinds = tuple(a.split(":")[0] for a in self.acts)
        return (self.at,) if self.at in kinds else kinds


@dataclass(frozen=True, slots=True)
class _Run:
    code: int | None
    output: str
    errors: str
    report: dict[str, object] = field(default_factory=dict)


def check(drawn: Surrounded, keep: Path | None = None) -> Checked:
    """``keep``: a folder to which the program's files are copied when it goes wrong."""
    found = Checked(drawn.seed, f"{drawn.nest.build.name}{' static' if drawn.static else ''} {drawn.way}", drawn.acts)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="surroundings-") as name:
        folder = Path(name)
        program = build(drawn, folder)
        command, ready = [str(program), *drawn.acts], time.monotonic()
        natives = [_run(command, folder, NATIVE) for _ in range(2)]
        patience = HELPED + FACTOR * (time.monotonic() - ready)
        right = natives[0]
        again = (natives[1].code, natives[1].output)
        if right.code != 0 or again != (0, right.output) or " 0 wrong" not in right.output:
            found.unsound = "; ".join(f"{_end(n.code)} {n.output!r}" for n in natives)
        elif re.search(r": (?!0 wrong)-?\d+ wrong", right.output):
            found.unsound = right.output
        if not found.unsound:
            _compare(found, right, _WAYS[drawn.way](command, folder, drawn, patience))
        if keep is not None and (found.wrong or found.unsound):
            target = keep / str(drawn.seed)
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(folder, target)
            words = " ".join(f"{n}='{_environment(drawn)[n]}'" for n in ("AWAIT_NEW_CODE", "EAGER"))
            (target / "command").write_text(f"# {drawn.way}\n{words} {' '.join(_memopt('exec', '--'))} ./program "
                                            f"{' '.join(drawn.acts)}\n")
    found.seconds = time.monotonic() - began
    return found


def _compare(found: Checked, right: _Run, helped: _Run) -> None:
    told = _TOLD.findall(helped.errors)
    place = {kind for what, kind, value in told if what == "begins" and value == "1"}
    found.acted = tuple(kind for what, kind, value in told if what == "acted" and value == "1" and kind in place)
    loops = helped.report.get("loops") or []
    assert isinstance(loops, list)
    found.replaced = any(x["outcome"] == "replaced" for x in loops) or bool(place)
    found.reasons = [f"{x['reason']}: {x['detail']}" for x in loops if x["reason"]]
    found.said = [line for line in helped.errors.splitlines() if "internal error" in line or "please report" in line]
    if (helped.code, helped.output) == (right.code, right.output):
        if found.said:
            found.wrong = found.said[0]
        return
    begun = [kind for what, kind, _ in told if what == "begins"]
    found.at = begun[-1] if begun else "warm"
    if helped.code != right.code:
        found.wrong = f"{_end(helped.code)} in {found.at}{'' if found.at in place else ' (no new code)'}"
        if found.at in place:
            found.acted = (*found.acted, found.at)
    else:
        differing = [line for line in helped.output.splitlines() if line not in right.output.splitlines()]
        found.wrong = "; ".join(differing) or "lines are missing"
        found.at = differing[0].split(":")[0] if differing else found.at


def _executed(command: list[str], folder: Path, drawn: Surrounded, patience: float) -> _Run:
    report = folder / "report.json"
    trial = ("--no-shadow",) if drawn.way == "wrong" else ()
    return _run([*_memopt("exec", *trial, "--json", str(report), "--"), *command], folder, patience, drawn, report)


def _killed(command: list[str], folder: Path, drawn: Surrounded, patience: float) -> _Run:
    """memopt is killed when the surroundings begin to act; the program goes on alone, and its exit code is unknown."""
    with open(folder / "out", "wb") as output, open(folder / "err", "wb") as errors:
        memopt = subprocess.Popen([*_memopt("exec", "--"), *command], stdin=subprocess.DEVNULL, stdout=output,
                                  stderr=errors, env=_environment(drawn), start_new_session=True)
        _until(lambda: "begins" in (folder / "err").read_text() or memopt.poll() is not None, patience)
        programs = [pid for pid in _members(memopt.pid) if pid != memopt.pid]
        os.kill(memopt.pid, signal.SIGKILL)
        ended = _until(lambda: not set(programs) & set(_members(memopt.pid)), patience)
        _waited(memopt, 1.0)
        _forget(programs)
    output_text = (folder / "out").read_text()
    return _Run(0 if ended and output_text.endswith(" wrong\n") else None, output_text, (folder / "err").read_text())


def _attached(command: list[str], folder: Path, drawn: Surrounded, patience: float) -> _Run:
    """``memopt attach`` while the program is warmed up: memopt has gone when the surroundings act. "undone": what it
    has installed is taken out while they act."""
    report, until = folder / "report.json", folder / "until"
    environment = _environment(drawn)
    if drawn.way == "undone":
        until.touch()
        environment["UNTIL_GONE"] = str(until)
    with open(folder / "out", "wb") as output, open(folder / "err", "wb") as errors:

        def memopt(*words: str) -> None:
            helper = subprocess.Popen([*_memopt("attach", *words), str(process.pid)], stdin=subprocess.DEVNULL,
                                      stdout=subprocess.DEVNULL, stderr=errors, env=_environment(drawn),
                                      start_new_session=True)
            _waited(helper, patience)

        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=environment,
                                   start_new_session=True)
        time.sleep(0.3)
        memopt("--quiet", "--json", str(report))
        if drawn.way == "undone":
            _until(lambda: "begins" in (folder / "err").read_text() or process.poll() is not None, patience)
            if process.poll() is None:
                memopt("--undo")
                time.sleep(0.3)  # they go on in what may have been taken away
                until.unlink()
        code = _waited(process, patience)
        _forget([process.pid])
    return _Run(code, (folder / "out").read_text(errors="replace"), (folder / "err").read_text(errors="replace"),
                _read(report))


_WAYS = {"exec": _executed, "wrong": _executed, "killed": _killed, "attach": _attached, "undone": _attached}


def _forget(pids: list[int]) -> None:
    """Delete what memopt leaves when it goes before the program: its perf maps."""
    for pid in pids:
        perf_map.delete(pid)


def _members(session: int) -> list[int]:
    """The living processes of a session."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, _, number = path.read_text().rpartition(") ")[2].split()[:4]
            if int(number) == session and state != "Z":
                found.append(int(path.parent.name))
    return found


def _until(condition: Callable[[], bool], patience: float) -> bool:
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def _memopt(*words: str) -> list[str]:
    return [sys.executable, "-m", "tests.support.surroundings.eager", *words]


def _environment(drawn: Surrounded | None) -> dict[str, str]:
    environment = {n: v for n, v in os.environ.items() if n not in ("AWAIT_NEW_CODE", "EAGER")}
    if drawn is None:
        return environment
    words = (*(["kept"] if drawn.kept else []), *(["wrong"] if drawn.way == "wrong" else []))
    return {**environment, "AWAIT_NEW_CODE": AWAIT, "EAGER": " ".join(words)}


def _run(command: list[str], folder: Path, patience: float, drawn: Surrounded | None = None, report: Path | None = None
         ) -> _Run:
    with open(folder / "out", "wb") as output, open(folder / "err", "wb") as errors:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
                                   env=_environment(drawn), start_new_session=True)
        code = _waited(process, patience)
    return _Run(code, (folder / "out").read_text(errors="replace"), (folder / "err").read_text(errors="replace"),
                _read(report) if report is not None else {})


def _waited(process: subprocess.Popen[bytes], patience: float) -> int | None:
    """The exit code; None where it did not end. Nothing of its session is left."""
    try:
        code: int | None = process.wait(patience)
    except subprocess.TimeoutExpired:
        code = None
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return code


def _read(path: Path) -> dict[str, object]:
    try:
        found: dict[str, object] = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found


def _end(code: int | None) -> str:
    if code is None:
        return "endless"
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
