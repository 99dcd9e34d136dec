"""Who stands in some code of a live process, or may come back to it."""

from __future__ import annotations

import os
import signal
import struct
import time
from collections.abc import Iterator

import pytest

from memopt.ir.reasons import Reason, Rejected
from runtime.patching.install import install
from runtime.target import contexts, ptrace
from runtime.target.contexts import may_resume, standing, suspended
from runtime.target.memory import mapping_at, mappings
from runtime.target.ptrace import Stop, StopKind
from runtime.target.tracee import Tracee, attach, thread_state, threads
from tests.support.targets import RIGHT, Worker
from tests.support.version import HEADER_BYTES, prepare
from tests.support.waiting import PATIENCE

TWO = HEADER_BYTES + bytes.fromhex("480106")  # mov eax, 1; add [rsi], rax
NOWHERE = 0x1234_5678_9000  # no address of anything


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker("shared") as started:
        yield started


def until_it_stands_at(tracee: Tracee, address: int) -> None:
    """``address``: in the loop of ``spin``."""
    deadline = time.monotonic() + PATIENCE
    tracee.stop()
    while not address - 16 < tracee.registers().rip < address + 16:
        assert time.monotonic() < deadline
        tracee.run_for(0.0003)
        tracee.stop()
    for _ in range(8):
        if tracee.registers().rip != address:
            tracee.go(ptrace.SINGLESTEP, tracee.pid)
            tracee.wait(tracee.pid, PATIENCE)
    tracee.take_over(Stop(StopKind.INTERRUPT))  # the SIGTRAP of a step is not the program's
    assert tracee.registers().rip == address


def test_a_suspended_context_keeps_the_patch_away() -> None:
    """The task stands at the second instruction under the patch while another one runs: no register shows it."""
    with Worker("tasks") as worker:
        header = worker.address("spin_header")
        with attach(worker.pid) as tracee:
            until_it_stands_at(tracee, header + len(HEADER_BYTES))
            os.kill(worker.pid, signal.SIGUSR2)  # delivered before it goes on
        with attach(worker.pid) as tracee:
            tracee.stop()
            while header <= tracee.registers().rip < header + 13:  # until the other task runs
                tracee.run_for(0.001)
                tracee.stop()
            cache, patch = prepare(tracee, header, TWO)
            assert all(not header <= place < patch.end for place in standing(tracee))
            with pytest.raises(Rejected) as caught:
                install(tracee, patch, cache, timeout_s=0.1)
            assert caught.value.reason is Reason.BLOCKED
            assert tracee.memory.read(header, len(TWO)) == TWO
        os.kill(worker.pid, signal.SIGUSR2)  # the first task goes on
        with attach(worker.pid) as tracee:
            tracee.stop()
            install(tracee, patch, cache, timeout_s=PATIENCE)
        before = cache.read_statistics()
        worker.breathe(0.05)
        assert cache.read_statistics().entries > before.entries
        assert worker.finish() == RIGHT


@pytest.mark.parametrize("place", ["variable", "stack", "shared"])
def test_a_word_anywhere_counts(worker: Worker, place: str) -> None:
    with attach(worker.pid) as tracee:
        tracee.stop()
        stack = mapping_at(mappings(worker.pid), tracee.registers().rsp)
        shared = next(m for m in mappings(worker.pid) if m.shared and m.writable)
        assert stack is not None
        at = {"variable": worker.address("again") + 4096, "stack": stack.start + 64, "shared": shared.end - 8}[place]
        assert not may_resume(tracee, NOWHERE, NOWHERE + 16)
        before = tracee.memory.word(at)
        tracee.memory.write(at, struct.pack("<Q", NOWHERE + 15))
        assert may_resume(tracee, NOWHERE, NOWHERE + 16)
        assert suspended(tracee, NOWHERE, NOWHERE + 16, only={NOWHERE + 15})
        assert not suspended(tracee, NOWHERE, NOWHERE + 16, only={NOWHERE})
        assert not may_resume(tracee, NOWHERE, NOWHERE + 15)
        assert not may_resume(tracee, NOWHERE + 16, NOWHERE + 32)
        assert not suspended(tracee, NOWHERE, NOWHERE + 16, ignored=[(at // 4096 * 4096 - (1 << 30), at + (1 << 30))])
        tracee.memory.write(at, struct.pack("<Q", before))
        assert not may_resume(tracee, NOWHERE, NOWHERE + 16)
    assert worker.finish() == RIGHT


def test_without_handlers_only_stacks_are_searched(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "LARGEST", 0)
    monkeypatch.setattr(contexts, "MORE_EACH_SECOND", 0)
    with attach(worker.pid) as tracee:
        tracee.stop()
        with pytest.raises(Rejected) as caught:  # too much memory to be sure
            may_resume(tracee, NOWHERE, NOWHERE + 16)
        assert caught.value.reason is Reason.NO_ROOM
        assert contexts.interrupted_by_handlers(worker.pid)
        monkeypatch.setattr(contexts, "interrupted_by_handlers", lambda _: False)
        assert not may_resume(tracee, NOWHERE, NOWHERE + 16)
        at = tracee.registers().rsp - 4096
        before = tracee.memory.word(at)
        tracee.memory.write(at, struct.pack("<Q", NOWHERE))
        assert may_resume(tracee, NOWHERE, NOWHERE + 16)
        tracee.memory.write(at, struct.pack("<Q", before))
        with pytest.raises(Rejected):
            suspended(tracee, NOWHERE, NOWHERE + 16, everywhere=True)
    assert worker.finish() == RIGHT


def test_threads_stand_where_they_are_and_sleepers_where_they_will_go_on() -> None:
    with Worker("thread") as worker:
        while any(thread_state(worker.pid, tid) != "S" for tid in threads(worker.pid) if tid != worker.pid):
            time.sleep(0.001)
        with attach(worker.pid) as tracee:
            tracee.stop()
            assert len(tracee.threads) == 1
            main, sleeper, call = standing(tracee)
            assert main == tracee.registers().rip
            assert tracee.memory.read(call, 2) == b"\x0f\x05"  # its syscall instruction
            assert sleeper == call + 2
            assert may_resume(tracee, sleeper, sleeper + 1)
        assert worker.finish() == RIGHT
