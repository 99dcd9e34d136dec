"""The lock of a version that somebody has left for good, in the running worker."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator

import pytest

from memopt.ir.code import FRAME_BUSY, FRAME_RETIRED
from memopt.ir.reasons import Reason, Rejected
from runtime.patching.code_cache import CodeCache
from runtime.patching.frame_lock import give_back, held
from runtime.patching.install import Installed, install, remove
from runtime.target import contexts
from runtime.target.tracee import Tracee, attach
from tests.support.targets import RIGHT, Worker
from tests.support.version import prepare
from tests.support.waiting import PATIENCE


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker("timer") as started:
        yield started


def outside(tracee: Tracee, cache: CodeCache, *, outside: bool = True) -> None:
    """Stop where the worker is not in the version; or where it is."""
    place, deadline = cache.placement, time.monotonic() + PATIENCE
    tracee.stop()
    while (place.code <= tracee.registers().rip < place.code + place.code_size) is outside:
        assert time.monotonic() < deadline
        tracee.run_for(0.0003)
        tracee.stop()


def taken(tracee: Tracee, cache: CodeCache) -> None:
    tracee.memory.write(cache.placement.frame + FRAME_BUSY, struct.pack("<Q", 1))


def test_a_lock_that_nobody_can_give_back_is_given_back(worker: Worker) -> None:
    with attach(worker.pid) as tracee:
        tracee.stop()
        cache, patch = prepare(tracee, worker.address("spin_header"))
        install(tracee, patch, cache)
        assert not held(tracee.memory, cache.placement)
        assert give_back(tracee, cache.placement)
        outside(tracee, cache)
        taken(tracee, cache)
        assert held(tracee.memory, cache.placement)
        while not give_back(tracee, cache.placement):  # in a handler that has interrupted the version
            tracee.run_for(0.001)
            outside(tracee, cache)
        assert not held(tracee.memory, cache.placement)
        assert tracee.memory.word(cache.placement.frame + FRAME_BUSY) == 0
    assert worker.finish() == RIGHT


def test_a_thread_in_the_version_keeps_it(worker: Worker) -> None:
    with attach(worker.pid) as tracee:
        tracee.stop()
        cache, patch = prepare(tracee, worker.address("spin_header"))
        install(tracee, patch, cache)
        outside(tracee, cache, outside=False)
        taken(tracee, cache)
        assert not give_back(tracee, cache.placement)
        assert held(tracee.memory, cache.placement)
    assert worker.finish() == RIGHT


@pytest.mark.parametrize("where", ["start", "end"])
def test_a_context_that_may_come_back_keeps_it(worker: Worker, where: str) -> None:
    """As a ucontext_t of a user-level thread that was interrupted in the version would."""
    at = worker.address("again") + 800
    with attach(worker.pid) as tracee:
        tracee.stop()
        cache, patch = prepare(tracee, worker.address("spin_header"))
        install(tracee, patch, cache)
        remove(tracee, Installed(patch, cache.placement))  # so that the worker itself is not in it
        place = cache.placement
        taken(tracee, cache)
        outside(tracee, cache)
        tracee.run_for(0.02)  # out of any handler
        outside(tracee, cache)
        word = place.code if where == "start" else place.code + place.code_size - 1
        tracee.memory.write(at, struct.pack("<Q", word))
        assert not give_back(tracee, place)
        assert held(tracee.memory, place)
        tracee.memory.write(at, bytes(8))
        while not give_back(tracee, place):
            tracee.run_for(0.001)
            outside(tracee, cache)
    assert worker.finish() == RIGHT


def test_too_much_memory_keeps_it(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "LARGEST", 0)
    monkeypatch.setattr(contexts, "MORE_EACH_SECOND", 0)
    with attach(worker.pid) as tracee:
        tracee.stop()
        cache, _ = prepare(tracee, worker.address("spin_header"))
        taken(tracee, cache)
        with pytest.raises(Rejected) as caught:
            give_back(tracee, cache.placement)
        assert caught.value.reason is Reason.NO_ROOM
        assert held(tracee.memory, cache.placement)
    assert worker.finish() == RIGHT


def test_a_version_that_was_taken_out_stays_locked(worker: Worker) -> None:
    with attach(worker.pid) as tracee:
        tracee.stop()
        cache, patch = prepare(tracee, worker.address("spin_header"))
        install(tracee, patch, cache)
        remove(tracee, Installed(patch, cache.placement))
        assert not held(tracee.memory, cache.placement)
        assert give_back(tracee, cache.placement)
        assert tracee.memory.word(cache.placement.frame + FRAME_BUSY) == FRAME_RETIRED
    assert worker.finish() == RIGHT
