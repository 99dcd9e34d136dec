"""A program that confines itself by seccomp while memopt is at work on it: no call is made in it from then on.

The worker's filter kills for every call that memopt makes. Each step is tried in the same stop in which it would be
made; its twin before the confinement shows that it can be made.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from memopt.ir.reasons import Reason, Rejected
from runtime.patching.code_cache import CodeCache, map_alike
from runtime.patching.install import Installed, Patch, find_installed, find_versions, install, remove
from runtime.target import remote_calls
from runtime.target.eligibility import check_in_service, check_process
from runtime.target.memory import mapping_at, mappings
from runtime.target.remote_calls import Call
from runtime.target.sigsegv import check_handler
from runtime.target.tracee import Tracee, attach, status_field
from runtime.trial.shadow import fork_shadow, reap
from tests.support.targets import RIGHT, Worker
from tests.support.version import HEADER_BYTES, prepare
from tests.support.waiting import PATIENCE

SYS_GETPID = 39


@pytest.fixture(params=["child", "foreign"])
def worker(request: pytest.FixtureRequest) -> Iterator[Worker]:
    with Worker("confine", "segv", foreign=request.param == "foreign") as started:
        yield started


def confine(worker: Worker) -> None:
    os.kill(worker.pid, signal.SIGUSR2)
    deadline = time.monotonic() + PATIENCE
    while status_field(worker.pid, "Seccomp") == "0":
        assert time.monotonic() < deadline
        time.sleep(0.001)


def steps(tracee: Tracee, cache: CodeCache, zombies: list[object]) -> dict[str, Callable[[], object]]:
    """Everything that makes the process call."""
    def shadow() -> None:
        with fork_shadow(tracee) as copy:
            zombies.append(copy)

    return {
        "call": lambda: remote_calls.run(tracee, (Call(SYS_GETPID, ()),)),
        "shadow": shadow,
        "pages": lambda: CodeCache.create(tracee, cache.placement.code, 4096, 4096, 4096).release(tracee),
        "scratch": lambda: cache.reserve_scratch(tracee, 1 << 20),
        "handler": lambda: check_handler(tracee, cache.placement.scratch),
        "reap": lambda: reap(tracee, zombies),
    }


def test_no_call_is_made_in_it(worker: Worker) -> None:
    zombies: list[object] = []
    with attach(worker.pid) as tracee:
        tracee.stop()
        cache, _ = prepare(tracee, worker.address("spin_header"))
        for name, step in steps(tracee, cache, zombies).items():
            if name == "handler":
                with pytest.raises(Rejected, match="its handler is at"):
                    step()
            else:
                step()
    with attach(worker.pid) as tracee:
        tracee.stop()
        with fork_shadow(tracee) as last:
            pass
    confine(worker)
    with attach(worker.pid) as tracee:
        tracee.stop()
        before = mappings(worker.pid)
        for name, step in steps(tracee, cache, [last] if last.zombie else []).items():
            if name == "reap" and not last.zombie:
                continue
            with pytest.raises(Rejected) as caught:
                step()
            assert caught.value.reason is Reason.SECCOMP, name
        with pytest.raises(Rejected):
            map_alike(tracee, cache.placement)
        with pytest.raises(Rejected) as caught:
            cache.release(tracee)
        assert caught.value.reason is Reason.SECCOMP
        assert mappings(worker.pid) == before
        with pytest.raises(Rejected) as caught:
            check_process(worker.pid)
        assert caught.value.reason is Reason.SECCOMP
    assert worker.finish() == RIGHT  # a zombie that stays is not seen by its waitpid


def installed(worker: Worker) -> tuple[CodeCache, Patch]:
    with attach(worker.pid) as tracee:
        tracee.stop()
        cache, patch = prepare(tracee, worker.address("spin_header"))
        cache.reserve_scratch(tracee, 1 << 20)
        install(tracee, patch, cache)
    before, deadline = cache.read_statistics(), time.monotonic() + PATIENCE
    while cache.read_statistics().entries < before.entries + 1000:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return cache, patch


def test_a_version_in_service_stays_and_may_be_taken_out(worker: Worker) -> None:
    cache, patch = installed(worker)
    confine(worker)
    before = cache.read_statistics()
    worker.breathe(0.05)
    assert cache.read_statistics().entries > before.entries
    with attach(worker.pid) as tracee:
        tracee.stop()
        assert not remove(tracee, find_installed(worker.pid)[0]).running
        assert tracee.memory.read(patch.address, 5) == HEADER_BYTES
        assert mapping_at(mappings(worker.pid), cache.placement.scratch) is not None  # no call, so it stays
        assert find_versions(worker.pid) == (Installed(patch, cache.placement, in_force=False),)
        remove(tracee, find_versions(worker.pid)[0])  # once more
    worker.breathe(0.01)  # it may have stood behind the loop, about to count the run
    before = cache.read_statistics()
    worker.breathe(0.05)
    assert cache.read_statistics() == before
    assert worker.finish() == RIGHT


def test_a_version_that_was_set_aside_may_be_put_back() -> None:
    with Worker("confine") as worker:
        cache, patch = installed(worker)
        confine(worker)
        with attach(worker.pid) as tracee:
            tracee.stop()
            remove(tracee, Installed(patch, cache.placement))
            install(tracee, patch, cache, check=lambda: check_in_service(worker.pid))
        assert find_installed(worker.pid) == (Installed(patch, cache.placement),)
        assert worker.finish() == RIGHT


def test_a_new_version_is_not_installed() -> None:
    with Worker("confine") as worker:
        header = worker.address("spin_header")
        with attach(worker.pid) as tracee:
            tracee.stop()
            cache, patch = prepare(tracee, header)
        confine(worker)
        with attach(worker.pid) as tracee:
            tracee.stop()
            with pytest.raises(Rejected) as caught:
                install(tracee, patch, cache, check=lambda: check_process(worker.pid))
            assert caught.value.reason is Reason.SECCOMP
            assert tracee.memory.read(header, 5) == HEADER_BYTES
        assert worker.finish() == RIGHT
