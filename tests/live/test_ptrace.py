"""Attaching, stopping, remote calls: the worker must never notice."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from memopt.ir.reasons import Reason, Rejected, VerifyError
from runtime.target import remote_calls
from runtime.target.memory import mapping_at, mappings
from runtime.target.ptrace import TargetEnded
from runtime.target.remote_calls import Call
from runtime.target.tracee import Tracee, attach, thread_state, threads
from tests.support.targets import RIGHT, Worker
from tests.support.waiting import PATIENCE


@pytest.fixture(params=["child", "foreign"])
def worker(request: pytest.FixtureRequest) -> Iterator[Worker]:
    with Worker("timer", foreign=request.param == "foreign") as started:
        yield started


def _vectors(tracee: Tracee) -> bytes:
    """The vector state without the header, in which the kernel notes which parts are in their initial state."""
    state = tracee.vector_state()
    return state[:512] + state[576:]


def test_stop_and_detach_leave_no_trace(worker: Worker) -> None:
    for _ in range(20):
        with attach(worker.pid) as tracee:
            tracee.stop()
            assert thread_state(worker.pid, worker.pid) == "t"
        assert thread_state(worker.pid, worker.pid) != "t"
    assert worker.finish() == RIGHT


def test_many_stops_of_one_attachment_under_a_timer(worker: Worker) -> None:
    with attach(worker.pid) as tracee:
        for _ in range(50):
            tracee.stop()
            tracee.run_for(0.002)
    assert worker.finish() == RIGHT


def test_remote_calls_work_and_change_no_register(worker: Worker) -> None:
    for _ in range(30):
        with attach(worker.pid) as tracee:
            tracee.stop()
            before, mask, vectors = tracee.registers(), tracee.signal_mask(), _vectors(tracee)
            address, = remote_calls.run(tracee, (Call(remote_calls.SYS_MMAP, (0, 8192, 3, 0x22, -1, 0)),))
            place = mapping_at(mappings(worker.pid), address)
            assert place is not None
            assert place.perms == "rw-"
            tracee.memory.write(address, b"written")
            assert remote_calls.run(tracee, (Call(remote_calls.SYS_MUNMAP, (address, 8192)),
                                       Call(remote_calls.SYS_MUNMAP, (1, 8192)))) == (0, -22)
            assert mapping_at(mappings(worker.pid), address) is None
            assert tracee.registers() == before.outside_call()
            assert tracee.signal_mask() == mask
            assert _vectors(tracee) == vectors
            assert not any(_padding(tracee))
        worker.breathe(0.003)
    assert worker.finish() == RIGHT


def _padding(tracee: remote_calls.Tracee) -> bytes:
    place = remote_calls.find_place(tracee, 64)
    return tracee.memory.read(place.start, place.end - place.start)


def test_the_stub_of_a_memopt_that_let_go_completes_by_itself(worker: Worker) -> None:
    """Detached at the first possible moment, the target makes the calls and goes on where it was."""
    with attach(worker.pid) as tracee:
        tracee.stop()

        def let_go(pid: int) -> None:
            raise AssertionError

        def leave(index: int, result: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            remote_calls.run(tracee, (Call(319, (b"memopt\0", 1), keep=True), Call(3, (remote_calls.KEPT,))),
                             observe=leave, new_process=let_go)
    worker.breathe()
    # A later memopt finds its bytes and uses the same place again.
    with attach(worker.pid) as tracee:
        tracee.stop()
        assert remote_calls.run(tracee, (Call(39, ()),))[0] == worker.pid
        assert not any(_padding(tracee))
    assert worker.finish() == RIGHT


def test_signals_during_remote_calls_are_delivered_afterwards(worker: Worker) -> None:
    worker.breathe()
    with attach(worker.pid) as tracee:
        tracee.stop()
        before = tracee.signal_mask()  # not zero in the handler of its timer

        def disturb(index: int, result: int) -> None:
            os.kill(worker.pid, signal.SIGUSR1)

        remote_calls.run(tracee, [Call(39, ())] * 3, observe=disturb)
        assert tracee.signal_mask() == before
    output, _ = worker.process.communicate(timeout=PATIENCE)
    assert output.startswith(RIGHT)


def test_stopped_by_job_control_is_left_alone(worker: Worker) -> None:
    os.kill(worker.pid, signal.SIGSTOP)
    _wait_state(worker, "T")
    with attach(worker.pid) as tracee, pytest.raises(Rejected) as caught:
        tracee.stop(0.1)
    assert caught.value.reason is Reason.BLOCKED
    _wait_state(worker, "T")
    os.kill(worker.pid, signal.SIGCONT)
    assert worker.finish() == RIGHT


def test_a_stop_signal_while_stopped_takes_effect_at_detach(worker: Worker) -> None:
    with attach(worker.pid) as tracee:
        tracee.stop()
        os.kill(worker.pid, signal.SIGSTOP)
        assert remote_calls.run(tracee, (Call(39, ()),))[0] == worker.pid
    _wait_state(worker, "T")
    if not worker.foreign:
        assert os.WIFSTOPPED(os.waitpid(worker.pid, os.WUNTRACED)[1])  # its parent hears of it
    os.kill(worker.pid, signal.SIGCONT)
    assert worker.finish() == RIGHT


def test_stop_signal_between_attach_and_stop(worker: Worker) -> None:
    with attach(worker.pid) as tracee:
        os.kill(worker.pid, signal.SIGSTOP)
        tracee.run_for(0.05)
        _wait_state(worker, "t")
        with pytest.raises(Rejected):
            tracee.stop(0.2)
        os.kill(worker.pid, signal.SIGCONT)
        tracee.stop(30.0)
    assert worker.finish() == RIGHT


def _wait_state(worker: Worker, state: str) -> None:
    deadline = time.monotonic() + 60
    while thread_state(worker.pid, worker.pid) != state:
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.parametrize("mode", ["sleep", "read"])
def test_a_sleeper_is_not_interrupted(mode: str) -> None:
    with Worker(mode) as worker:
        _wait_state(worker, "S")
        with attach(worker.pid) as tracee:
            with pytest.raises(Rejected) as caught:
                tracee.stop(0.05)
            assert caught.value.reason is Reason.BLOCKED
            assert tracee.threads == (worker.pid,)
        if mode == "read":
            assert worker.process.stdin is not None
            worker.process.stdin.write("x")
            worker.process.stdin.flush()
        with attach(worker.pid) as tracee:
            tracee.stop(30.0)  # now it computes
        output = worker.finish()
    assert output == ("slept 0\n" if mode == "sleep" else "read 1\n") + RIGHT


def test_killed_while_attached(worker: Worker) -> None:
    def kill_it() -> None:
        with attach(worker.pid) as tracee:
            tracee.stop()
            os.kill(worker.pid, signal.SIGKILL)
            _wait_state(worker, "Z")
            tracee.registers()

    with pytest.raises(TargetEnded) as caught:
        kill_it()
    assert caught.value.status is not None
    assert os.WTERMSIG(caught.value.status) == signal.SIGKILL


def test_exit_while_attached_reports_the_status(worker: Worker) -> None:
    def end_it() -> None:
        with attach(worker.pid) as tracee:
            os.kill(worker.pid, signal.SIGUSR1)
            for _ in range(1000):
                tracee.stop(30.0)
                tracee.run_for(0.002)

    with pytest.raises(TargetEnded) as caught:
        end_it()
    assert caught.value.status is not None
    assert os.WEXITSTATUS(caught.value.status) == 7


def test_no_such_process() -> None:
    with Worker() as worker:
        pid = worker.pid
        assert worker.finish() == RIGHT
    with pytest.raises(TargetEnded):
        attach(pid)


def test_traced_by_another(worker: Worker) -> None:
    ready = os.pipe()
    other = os.fork()
    if not other:
        attach(worker.pid)
        os.write(ready[1], b"!")
        signal.pause()
    os.read(ready[0], 1)
    try:
        with pytest.raises(Rejected, match=str(other)) as caught:
            attach(worker.pid)
        assert caught.value.reason is Reason.PTRACE_FORBIDDEN
    finally:
        os.kill(other, signal.SIGKILL)
        os.waitpid(other, 0)
    assert worker.finish() == RIGHT


def test_a_running_thread_is_never_asked(worker: Worker) -> None:
    worker.breathe()
    with attach(worker.pid) as tracee, pytest.raises(VerifyError):
        tracee.registers()
    assert worker.finish() == RIGHT


def test_a_thread_that_sleeps_is_left_asleep() -> None:
    """An interruption might make its system call fail."""
    with Worker("thread") as worker:
        while any(thread_state(worker.pid, tid) != "S" for tid in threads(worker.pid) if tid != worker.pid):
            time.sleep(0.001)
        with attach(worker.pid) as tracee:
            tracee.stop()
            assert tracee.threads == (worker.pid,)
            states = {tid: thread_state(worker.pid, tid) for tid in threads(worker.pid)}
            assert sorted(states.values()) == ["S", "t"]
            assert states[worker.pid] == "t"
        assert worker.finish() == RIGHT


def test_stubs_that_are_left_are_written_over_only_when_there_is_no_room_elsewhere() -> None:
    """Each memopt that lets go in a call leaves its stub; a signal may have come in the middle of it."""
    def leave(index: int, result: int) -> None:
        raise KeyboardInterrupt

    places = set[int]()
    with Worker("timer") as worker:
        for _ in range(40):
            with attach(worker.pid) as tracee:
                tracee.stop()
                places.add(remote_calls.find_place(tracee, 600).start)
                with pytest.raises(KeyboardInterrupt):
                    remote_calls.run(tracee, [Call(39, ())] * 12, observe=leave)
        assert 10 < len(places) < 40
        assert worker.finish() == RIGHT
