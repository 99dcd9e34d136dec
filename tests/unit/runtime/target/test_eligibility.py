from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from memopt.ir.reasons import Reason, Rejected
from runtime.target import sigsegv
from runtime.target.eligibility import check_in_service, check_process, check_traceable, identity
from runtime.target.memory import parse_mappings
from runtime.target.sigsegv import may_suspend
from runtime.target.tracee import attach, status_field
from tests.support.targets import RIGHT, Worker, build


def reason(pid: int) -> Reason:
    with pytest.raises(Rejected) as caught:
        check_process(pid)
    return caught.value.reason


def test_an_ordinary_process_is_accepted() -> None:
    with Worker("timer") as worker:
        check_process(worker.pid)
        assert worker.finish() == RIGHT


def test_a_process_that_another_thread_of_memopt_traces_is_accepted() -> None:
    """TracerPid is the thread, not the process."""
    with Worker("timer") as worker:
        held, done = threading.Event(), threading.Event()

        def hold() -> None:
            with attach(worker.pid):
                held.set()
                done.wait(60)

        thread = threading.Thread(target=hold)
        thread.start()
        try:
            assert held.wait(60)
            assert status_field(worker.pid, "TracerPid") not in ("0", str(os.getpid()))
            check_process(worker.pid)
        finally:
            done.set()
            thread.join()
        assert worker.finish() == RIGHT


def test_a_confined_process_may_keep_its_versions() -> None:
    for mode, taken_out in (("seccomp", False), ("segv", True)):
        with Worker(mode) as worker:
            check_traceable(worker.pid)  # whoever may be traced may be freed of memopt's code
            if taken_out:
                with pytest.raises(Rejected) as caught:
                    check_in_service(worker.pid)
                assert caught.value.reason is Reason.SIGSEGV_HANDLER
            else:
                check_in_service(worker.pid)
            assert worker.finish() == RIGHT


@pytest.mark.parametrize(("mode", "expected"), [
    ("segv", Reason.SIGSEGV_HANDLER), ("seccomp", Reason.SECCOMP),
])
def test_refused_and_left_running(mode: str, expected: Reason) -> None:
    with Worker(mode) as worker:
        assert reason(worker.pid) is expected
        assert worker.finish() == RIGHT


@pytest.mark.parametrize("library", ["libgfortran.so.5.0.0", "R/lib/libR.so"])
def test_programs_of_some_libraries_may_handle_sigsegv(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Worker("segv") as worker:
        maps = parse_mappings(f"1000-2000 r-xp 00000000 fe:00 9 /usr/lib/{library}")
        monkeypatch.setattr(sigsegv, "mappings", lambda _: maps)
        check_process(worker.pid)
        assert worker.finish() == RIGHT


@pytest.mark.parametrize(("library", "suspends"), [
    ("libgfortran.so.5.0.0", False), ("libpython3.11.so.1.0", False), ("program", True)])
def test_handlers_that_end_the_program_or_return_at_once(library: str, suspends: bool,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker has handlers of its own; the file that they lie in is given another name."""
    real = sigsegv.mappings
    monkeypatch.setattr(sigsegv, "mappings", lambda pid: tuple(
        replace(m, path=f"/usr/lib/{library}") if m.path.endswith("/worker-no-pie") else m for m in real(pid)))
    with Worker("segv", "timer") as worker, attach(worker.pid) as tracee:
        tracee.stop()
        assert may_suspend(tracee, worker.address("again")) is suspends
        assert not any(tracee.memory.read(worker.address("again"), 4096))
        tracee.detach()
        assert worker.finish() == RIGHT


@pytest.mark.parametrize("bit", [0o4000, 0o2000])
def test_set_uid_programs(bit: int, tmp_path: Path) -> None:
    program = tmp_path / "worker"
    shutil.copy(build("-no-pie"), program)
    program.chmod(0o755 | bit)
    process = subprocess.Popen([str(program)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        assert reason(process.pid) is Reason.SET_UID
    finally:
        process.send_signal(signal.SIGUSR1)
        assert process.communicate()[0].strip() == RIGHT


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_users_process() -> None:
    process = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, user=65534, group=65534,
                               extra_groups=())
    try:
        assert reason(process.pid) is Reason.PTRACE_FORBIDDEN
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("header", "expected"), [
    (b"\x7fELF\x01\x01" + bytes(12) + b"\x03\0", Reason.THIRTY_TWO_BIT),
    (b"\x7fELF\x02\x01" + bytes(12) + b"\xb7\0", Reason.THIRTY_TWO_BIT),  # AArch64
    (b"", Reason.THIRTY_TWO_BIT),
])
def test_other_architectures(header: bytes, expected: Reason, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program"
    program.write_bytes(header)
    real = open
    monkeypatch.setattr("builtins.open", lambda path, *rest, **more: real(program if str(path).endswith("/exe") else
                                                                         path, *rest, **more))
    assert reason(os.getpid()) is expected


def test_a_process_that_is_gone() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert reason(process.pid) is Reason.ENDED
    with pytest.raises(Rejected) as caught:
        identity(process.pid)
    assert caught.value.reason is Reason.ENDED


def test_identity_notices_an_exec() -> None:
    """A shell that becomes another program under the same number."""
    process = subprocess.Popen(["/bin/sh", "-c", "read x; exec sleep 60"], stdin=subprocess.PIPE)
    assert process.stdin is not None
    try:
        while not os.readlink(f"/proc/{process.pid}/exe").endswith("sh"):
            pass
        known = identity(process.pid)
        known.verify()
        process.stdin.write(b"\n")
        process.stdin.flush()
        while not os.readlink(f"/proc/{process.pid}/exe").endswith(("sleep", "coreutils")):
            pass
        with pytest.raises(Rejected) as caught:
            known.verify()
        assert caught.value.reason is Reason.ENDED
        known.close()
    finally:
        process.kill()
        process.communicate()
