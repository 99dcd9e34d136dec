"""Programs that memopt must leave alone as a whole, told from outside: the reason by name, one line, nothing changed.

tests/live/test_refusals.py has the refusals that concern a nest. Each hazard here has a twin without it that is
replaced, so none of this would pass with the transformation turned off.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.measure.execution import memopt_command, run, run_under_memopt
from memopt.ir.reasons import Reason
from tests.conftest import Build
from tests.support.told import EXIT_CODE, Told
from tests.support.tools import lacking
from tests.support.waiting import PATIENCE

NOBODY = 65534
_SEIZE, _DETACH, _INTERRUPT = 0x4206, 17, 0x4207


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that any user may use."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        yield folder


def as_nobody(*options: str) -> list[str]:
    if os.geteuid() or shutil.which("setpriv") is None:
        pytest.skip("needs root, to become another user")
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    if subprocess.run([*become, *memopt_command(), "--version"], capture_output=True).returncode:
        pytest.skip("this checkout cannot be read by other users")
    return [*become, *memopt_command(), "exec", *options, "--"]


def dgemm_of(report: Path) -> dict[str, Any]:
    loops = [loop for loop in json.loads(report.read_text())["loops"] if loop["share"] > 0.5]
    assert len(loops) == 1
    assert loops[0]["function"] in ("dgemm", None)
    return dict(loops[0])


def ran(told: Told, expected: str, report: Path) -> tuple[str, str | None]:
    """Outcome and reason of the nest, when memopt has seen all that it wants to."""
    told.await_idle()
    assert told.finish() == (EXIT_CODE, expected)
    loop = dgemm_of(report)
    assert (loop["outcome"] == "replaced") == (loop["iterations_run"] > 0)
    return loop["outcome"], loop["reason"]


@pytest.mark.parametrize(("mode", "reason"), [
    ("seccomp", Reason.SECCOMP), ("asleep", None), ("plain", None),
    pytest.param("exceptions", Reason.GUARD_FAILED, marks=pytest.mark.long),
    pytest.param("ended", None, marks=pytest.mark.long),
])
def test_state_of_the_process(program: Path, expected: str, tmp_path: Path, mode: str, reason: Reason | None) -> None:
    report = tmp_path / "report"
    with Told(program, tmp_path, "--json", str(report), arguments=("400", mode)) as told:
        found = ran(told, expected, report)
    assert found == (("kept", reason.value) if reason else ("replaced", None)), told.stderr
    if reason is Reason.SECCOMP:
        assert len(told.words) == 1
        assert reason.explain in told.words[0]


@pytest.mark.parametrize(("mode", "reason"), [("hidden", Reason.PTRACE_FORBIDDEN), ("plain", None)])
def test_program_that_a_normal_user_may_not_trace(program: Path, expected: str, open_folder: Path, mode: str,
                                                  reason: Reason | None) -> None:
    report, copy = open_folder / "report", open_folder / "program"
    shutil.copy(program, copy)
    with Told(copy, open_folder, arguments=("400", mode), command=as_nobody("--json", str(report))) as told:
        found = ran(told, expected, report)
    assert found == (("kept", reason.value) if reason else ("replaced", None)), told.stderr
    if reason:
        assert len(told.words) == 1
        assert reason.explain in told.words[0]


def test_program_that_another_debugger_traces(program: Path, expected: str, tmp_path: Path) -> None:
    libc, report = ctypes.CDLL(None, use_errno=True), tmp_path / "report"
    with Told(program, tmp_path, "--json", str(report)) as told:
        assert libc.ptrace(_SEIZE, told.pid, None, None) == 0, os.strerror(ctypes.get_errno())
        told.await_idle()
        libc.ptrace(_INTERRUPT, told.pid, None, None)
        os.waitpid(told.pid, 0x40000000)
        assert libc.ptrace(_DETACH, told.pid, None, None) == 0
        assert ran(told, expected, report) == ("kept", Reason.PTRACE_FORBIDDEN.value), told.stderr


# Loaded before memopt: everything from here on may not use ptrace (what containers and sandboxes do).
_WITHOUT_PTRACE = """
import ctypes, os, struct, sys
code = [(0x20, 0, 0, 0), (0x15, 0, 1, 101), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7fff0000)]
text = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *line) for line in code))
filter = ctypes.create_string_buffer(struct.pack("<H6xQ", len(code), ctypes.addressof(text)))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, filter) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_sandbox_that_forbids_ptrace_to_both(program: Path, expected: str, tmp_path: Path) -> None:
    report = tmp_path / "report"
    python = [shutil.which("python3") or "python3", "-c", _WITHOUT_PTRACE]
    words = [*python, *memopt_command(), "exec", "--json", str(report), "--"]
    with Told(program, tmp_path, command=words) as told:
        outcome, reason = ran(told, expected, report)
    assert outcome == "kept"
    assert reason in (Reason.SECCOMP.value, Reason.PTRACE_FORBIDDEN.value)
    assert len(told.words) == 1


def once(command: Sequence[str]) -> tuple[dict[str, Any], str]:
    """The report of a run that must be as the native one, and memopt's one line about it."""
    native, trial = run(command, PATIENCE), run_under_memopt(command, PATIENCE)
    assert native.exit_code == 0
    assert trial.same_result(native)
    assert trial.report is not None
    lines = [line for line in trial.stderr.splitlines() if line.startswith("memopt: ")]
    assert len(lines) == 1
    return trial.report, lines[0]


@pytest.mark.parametrize("mode", [0o4755, 0o2755])
def test_set_uid_program(build: Build, tmp_path: Path, mode: int) -> None:
    copy = tmp_path / "program"
    shutil.copy(build("gemm_ijk.c"), copy)
    copy.chmod(mode)
    report, line = once((str(copy), "900"))
    assert report["reason"] == Reason.SET_UID.value
    assert report["loops"] == []
    assert Reason.SET_UID.explain in line


def test_program_with_file_capabilities(build: Build, tmp_path: Path) -> None:
    copy = tmp_path / "program"
    shutil.copy(build("gemm_ijk.c"), copy)
    if shutil.which("setcap") is None or subprocess.run(["setcap", "cap_net_raw+ep", copy]).returncode:
        pytest.skip("file capabilities cannot be set here")
    assert once((str(copy), "900"))[0]["reason"] == Reason.SET_UID.value


def test_set_uid_keeps_its_effect_for_a_normal_user(build: Build, open_folder: Path) -> None:
    """Under a tracer execve would ignore the bit, and the program would do something else."""
    words, source, copy = as_nobody(), open_folder / "who.c", open_folder / "who"
    source.write_text('#include <stdio.h>\n#include <unistd.h>\n'
                      'int main(void) { printf("%d %d\\n", getuid(), geteuid()); }')
    subprocess.run(["gcc", "-o", copy, source], check=True)
    copy.chmod(0o4755)
    assert run([*words[:4], str(copy)], 60).stdout == run([*words, str(copy)], 60).stdout == b"65534 0\n"


def test_32_bit_program(build: Build, tmp_path: Path) -> None:
    source = tmp_path / "probe.c"
    source.write_text("#include <stdio.h>\nint main(void) { return 0; }")
    if subprocess.run(["gcc", "-m32", "-o", tmp_path / "probe", source], capture_output=True).returncode:
        lacking("a compiler of 32-bit programs", "gcc-multilib")
    report, line = once((str(build("gemm_ijk.c", "-m32")), "700"))
    assert report["reason"] == Reason.THIRTY_TWO_BIT.value
    assert Reason.THIRTY_TWO_BIT.explain in line
