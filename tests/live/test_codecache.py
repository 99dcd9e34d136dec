"""The code cache in a live process: where it lies, what it may, what it leaves."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

import pytest

from memopt.ir.code import FRAME_LIMIT
from memopt.ir.reasons import Reason, Rejected
from runtime.patching.code_cache import NO_LIMIT, CodeCache, Statistics, check_limits
from runtime.target import remote_calls
from runtime.target.memory import PAGE, mapping_at, mappings
from runtime.target.remote_calls import Call
from runtime.target.tracee import Tracee, attach, status_field
from tests.support.targets import RIGHT, Worker


@pytest.fixture(params=["-no-pie", "-pie", "-static"])
def worker(request: pytest.FixtureRequest) -> Iterator[Worker]:
    with Worker("timer", flags=(request.param,)) as started:
        yield started


def create(tracee: Tracee) -> CodeCache:
    return CodeCache.create(tracee, tracee.registers().rip, 20000, 5000)


def test_pages_rights_and_descriptors(worker: Worker) -> None:
    descriptors = sorted(os.listdir(f"/proc/{worker.pid}/fd"))
    with attach(worker.pid) as tracee:
        tracee.stop()
        near = tracee.registers().rip
        cache = create(tracee)
        place = cache.placement
        assert sorted(os.listdir(f"/proc/{worker.pid}/fd")) == descriptors
        maps = mappings(worker.pid)
        for address, perms, shared in ((place.code, "r-x", False), (place.statistics, "rw-", True),
                                       (place.frame, "rw-", False)):
            mapping = mapping_at(maps, address)
            assert mapping is not None
            assert (mapping.perms, mapping.shared) == (perms, shared)
            assert -(1 << 31) < address - near < 1 << 31
        assert not any(m.writable and m.executable for m in maps)
        assert (place.code_size, place.frame_size) == (20480, 8192)
        assert tracee.memory.word(place.frame + FRAME_LIMIT) == NO_LIMIT
        cache.write_code(b"\x90\xc3", tracee)
        assert tracee.memory.read(place.code, 4) == b"\x90\xc3\xcc\xcc"
    assert worker.finish() == RIGHT


def test_statistics_outlive_the_target(worker: Worker) -> None:
    with attach(worker.pid) as tracee:
        tracee.stop()
        cache = create(tracee)
        tracee.memory.write(cache.placement.statistics, b"".join(n.to_bytes(8, "little") for n in (4, 3, 2)))
    assert cache.read_statistics() == Statistics(4, 3, 2)
    assert worker.finish() == RIGHT
    assert cache.read_statistics() == Statistics(4, 3, 2)
    cache.clear_statistics()
    assert cache.read_statistics() == Statistics(0, 0, 0)


def test_scratch_and_release(worker: Worker) -> None:
    with attach(worker.pid) as tracee:
        tracee.stop()
        before = mappings(worker.pid)
        cache = create(tracee)
        cache.reserve_scratch(tracee, 3 << 20)
        place = cache.reserve_scratch(tracee, 5 << 20)  # instead of the first
        assert place.scratch % (2 << 20) == 0
        assert place.scratch_size == 6 << 20
        anonymous = sum(m.end - m.start for m in mappings(worker.pid)) - sum(m.end - m.start for m in before)
        assert anonymous == place.scratch_size + place.code_size + place.frame_size + 4096
        cache.release(tracee)
        assert mappings(worker.pid) == before
    assert worker.finish() == RIGHT


def test_no_memory_is_a_refusal_and_leaves_nothing() -> None:
    with Worker() as worker:
        with open(f"/proc/{worker.pid}/statm", encoding="ascii") as file:
            pages = int(file.read().split()[0])
        resource.prlimit(worker.pid, resource.RLIMIT_AS, ((pages + 2) * 4096, (pages + 2) * 4096))
        with attach(worker.pid) as tracee:
            tracee.stop()
            before = mappings(worker.pid)
            with pytest.raises(Rejected) as caught:
                create(tracee)
            assert caught.value.reason is Reason.NO_MEMORY
            assert mappings(worker.pid) == before
        assert worker.finish() == RIGHT


def test_no_free_descriptor_is_a_refusal_and_leaves_nothing() -> None:
    with Worker() as worker:
        limits = resource.prlimit(worker.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        with attach(worker.pid) as tracee:
            tracee.stop()
            before = mappings(worker.pid)
            with pytest.raises(Rejected) as caught:
                create(tracee)
            assert caught.value.reason is Reason.NO_MEMORY
            assert mappings(worker.pid) == before
        resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, limits)
        assert worker.finish() == RIGHT


@pytest.mark.parametrize(("limit", "field"), [(resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")])
def test_what_a_limit_leaves_is_the_programs(limit: int, field: str) -> None:
    """A version may take little of it: natively the program could map all."""
    with Worker() as worker, attach(worker.pid) as tracee:
        tracee.stop()
        before = mappings(worker.pid)
        used = int(status_field(worker.pid, field).split()[0]) << 10
        unlimited = resource.prlimit(worker.pid, limit)
        for room, enough in ((100 << 10, False), (64 << 20, True)):
            resource.prlimit(worker.pid, limit, (used + room, unlimited[1]))
            if enough:
                create(tracee).release(tracee)
            else:
                with pytest.raises(Rejected, match="a limit leaves it") as caught:
                    create(tracee)
                assert caught.value.reason is Reason.NO_MEMORY
            assert mappings(worker.pid) == before


def test_the_last_mappings_are_the_programs() -> None:
    check_limits(os.getpid(), 40_000, PAGE)
    with pytest.raises(Rejected, match="mappings that a process may have"):
        check_limits(os.getpid(), 1 << 31, PAGE)


def test_a_process_that_has_executed_another_program_keeps_its_memory() -> None:
    """At the addresses of the version there may be anything by then."""
    with Worker() as first, Worker() as second:
        with attach(first.pid) as tracee:
            tracee.stop()
            cache = create(tracee)
        with attach(second.pid) as tracee:
            tracee.stop()
            place = cache.placement
            remote_calls.run(tracee, (Call(remote_calls.SYS_MMAP, (place.code, place.code_size, 3, 0x32, -1, 0)),))
            before = mappings(second.pid)
            assert mapping_at(before, place.code) is not None
            cache.release(tracee)
            assert mappings(second.pid) == before
        with attach(first.pid) as tracee:
            tracee.stop()
            cache.release(tracee)
            assert mapping_at(mappings(first.pid), place.code) is None
        assert (first.finish(), second.finish()) == (RIGHT, RIGHT)
