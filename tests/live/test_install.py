"""Installing a version in the running worker, finding it again, taking it out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from memopt.ir.code import FRAME_BUSY, FRAME_LIMIT, FRAME_RETIRED
from memopt.ir.reasons import Reason, Rejected
from runtime.patching import code_cache
from runtime.patching.code_cache import CodeCache
from runtime.patching.install import Installed, Patch, find_installed, find_versions, install, remove
from runtime.target import contexts
from runtime.target.memory import mapping_at, mappings
from runtime.target.tracee import attach
from tests.support.targets import RIGHT, Worker
from tests.support.version import HEADER_BYTES, prepare

TWO = HEADER_BYTES + bytes.fromhex("480106")  # and add [rsi], rax: a place to stand in


@pytest.fixture(params=["child", "foreign"])
def worker(request: pytest.FixtureRequest) -> Iterator[Worker]:
    with Worker("timer", foreign=request.param == "foreign") as started:
        yield started


def counted(cache: CodeCache) -> None:
    """The version is being run."""
    before, deadline = cache.read_statistics(), time.monotonic() + 60
    while (now := cache.read_statistics()).entries <= before.entries + 1000 or now.runs <= before.runs + 1000:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def standing_still(cache: CodeCache) -> None:
    """The version is no longer run: its counters come to rest, once the run that was under way has ended."""
    deadline = time.monotonic() + 20
    before, now = None, cache.read_statistics()
    while before != now:
        assert time.monotonic() < deadline
        time.sleep(0.03)
        before, now = now, cache.read_statistics()


def test_install_run_find_remove(worker: Worker) -> None:
    header = worker.address("spin_header")
    before = mappings(worker.pid)
    assert find_installed(worker.pid) == ()
    with attach(worker.pid) as tracee:
        tracee.stop()
        cache, patch = prepare(tracee, header)
        assert find_installed(worker.pid) == ()  # the pages alone are no patch
        install(tracee, patch, cache)
        assert tracee.memory.read(header, 5) == patch.replacement
    counted(cache)
    assert find_installed(worker.pid) == (Installed(patch, cache.placement),)
    # By another memopt, that knows nothing but the process.
    found, = find_installed(worker.pid)
    with attach(worker.pid) as tracee:
        tracee.stop()
        remains = remove(tracee, found)
        assert not remains.running
        assert tracee.memory.read(header, 5) == HEADER_BYTES
        assert tracee.memory.word(cache.placement.frame + FRAME_LIMIT) == 0
        assert tracee.memory.word(cache.placement.frame + FRAME_BUSY) == FRAME_RETIRED
    new = [m for m in mappings(worker.pid) if m not in before]  # its pages, and nothing else
    assert sum(m.end - m.start for m in new) == remains.bytes
    assert mapping_at(new, cache.placement.code) is not None
    standing_still(cache)
    assert find_installed(worker.pid) == ()
    assert find_versions(worker.pid) == (replace(found, in_force=False),)
    assert worker.finish() == RIGHT


def test_the_program_ends_with_the_version_in_place(worker: Worker) -> None:
    with attach(worker.pid) as tracee:
        tracee.stop()
        cache, patch = prepare(tracee, worker.address("spin_header"))
        install(tracee, patch, cache)
    counted(cache)
    assert worker.finish() == RIGHT
    assert cache.read_statistics().entries > 1000  # readable after the end


def test_again_and_again(worker: Worker) -> None:
    for _ in range(15):
        with attach(worker.pid) as tracee:
            tracee.stop()
            cache, patch = prepare(tracee, worker.address("spin_header"))
            install(tracee, patch, cache)
        counted(cache)
        with attach(worker.pid) as tracee:
            assert not remove(tracee, Installed(patch, cache.placement)).running
        cache.close()
    assert worker.finish() == RIGHT


def test_waits_until_no_thread_is_inside_the_displaced_bytes(worker: Worker) -> None:
    """Three displaced instructions in a loop of four: the worker nearly always stands inside."""
    header = worker.address("spin_header")
    displaced = HEADER_BYTES + bytes.fromhex("48010648ffcf")  # add [rsi], rax; dec rdi
    with attach(worker.pid) as tracee:
        tracee.stop()
        # The flags of dec are used behind it: count first, as the version does, and they are right again.
        cache, patch = prepare(tracee, header, displaced)
        install(tracee, patch, cache, timeout_s=20)
        assert not header < tracee.registers().rip < header + len(displaced)
    counted(cache)
    assert worker.finish() == RIGHT


def test_gives_up_when_a_thread_is_inside_all_the_time(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    header = worker.address("spin_header")
    with attach(worker.pid) as tracee:
        tracee.stop()
        cache, patch = prepare(tracee, header, TWO)
        monkeypatch.setattr(contexts, "standing", lambda _: (header + 5,))
        with pytest.raises(Rejected) as caught:
            install(tracee, patch, cache, timeout_s=0.05)
        assert caught.value.reason is Reason.BLOCKED
        assert tracee.memory.read(header, len(TWO)) == TWO
    assert worker.finish() == RIGHT


def test_one_whole_instruction_is_no_place_to_stand_in(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is looked for there."""
    monkeypatch.setattr(contexts, "standing", None)
    monkeypatch.setattr(contexts, "suspended", None)
    with attach(worker.pid) as tracee:
        tracee.stop()
        cache, patch = prepare(tracee, worker.address("spin_header"))
        install(tracee, patch, cache)
    counted(cache)
    assert worker.finish() == RIGHT


def test_scratch_memory_stays_while_somebody_is_in_the_version(worker: Worker) -> None:
    with attach(worker.pid) as tracee:
        tracee.stop()
        cache, patch = prepare(tracee, worker.address("spin_header"))
        cache.reserve_scratch(tracee, 1 << 20)
        install(tracee, patch, cache)
        place = cache.placement
        tracee.memory.write(place.frame + FRAME_BUSY, b"\1")
        assert remove(tracee, Installed(patch, place)).running
        assert mapping_at(mappings(worker.pid), place.scratch) is not None
        assert find_versions(worker.pid) == (Installed(patch, place, in_force=False),)
        tracee.memory.write(place.frame + FRAME_BUSY, bytes(8))  # it has come out
        found, = find_versions(worker.pid)
        for _ in range(2):  # and once more
            remains = remove(tracee, found)
            assert not remains.running
            assert mapping_at(mappings(worker.pid), place.scratch) is None
            found, = find_versions(worker.pid)
            assert remains.bytes == place.code_size + place.frame_size + 4096
            assert found.placement == replace(place, scratch=0, scratch_size=0)
    standing_still(cache)
    assert worker.finish() == RIGHT


def test_the_check_is_made_in_the_stop_of_the_commit(worker: Worker) -> None:
    header = worker.address("spin_header")

    def no() -> None:
        assert tracee.stopped
        raise Rejected(Reason.THREADS)

    with attach(worker.pid) as tracee:
        tracee.stop()
        cache, patch = prepare(tracee, header)
        with pytest.raises(Rejected) as caught:
            install(tracee, patch, cache, check=no)
        assert caught.value.reason is Reason.THREADS
        assert tracee.memory.read(header, 5) == HEADER_BYTES
        assert find_versions(worker.pid) == ()
        before = mappings(worker.pid)
        cache.release(tracee)
        assert mapping_at(mappings(worker.pid), cache.placement.code) is None
        assert len(mappings(worker.pid)) < len(before)
    assert worker.finish() == RIGHT


def test_code_that_is_not_what_was_lifted_gets_no_patch(worker: Worker) -> None:
    """Somewhere behind the header, as in a plug-in that was exchanged for another build."""
    header = worker.address("spin_header")
    with attach(worker.pid) as tracee:
        tracee.stop()
        cache, patch = prepare(tracee, header)
        code = tracee.memory.read(header, 40)
        with pytest.raises(Rejected) as refused:
            install(tracee, patch, cache, code=((header, code[:8]), (header + 8, code[8:-1] + bytes([code[-1] ^ 1]))))
        assert refused.value.reason is Reason.CODE_CHANGED
        assert tracee.memory.read(header, 40) == code
        install(tracee, patch, cache, code=((header, code),))
    counted(cache)


def test_what_piles_up_is_bounded(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_cache, "MOST_VERSIONS", 2)
    with attach(worker.pid) as tracee:
        tracee.stop()
        for _ in range(2):
            cache, patch = prepare(tracee, worker.address("spin_header"))
            install(tracee, patch, cache)
            remove(tracee, Installed(patch, cache.placement))
        with pytest.raises(Rejected) as caught:
            prepare(tracee, worker.address("spin_header"))
        assert caught.value.reason is Reason.NO_MEMORY
    assert worker.finish() == RIGHT


@pytest.mark.parametrize(("offset", "original", "reason"), [
    (0, b"\x90" * 5, Reason.CODE_CHANGED),  # other bytes are there
    (0, b"", Reason.NO_ROOM),
])
def test_refusals_leave_the_text_alone(worker: Worker, offset: int, original: bytes, reason: Reason) -> None:
    header = worker.address("spin_header")
    with attach(worker.pid) as tracee:
        tracee.stop()
        cache, _ = prepare(tracee, header)
        text = tracee.memory.read(header - 64, 128)
        with pytest.raises(Rejected) as caught:
            install(tracee, Patch(header + offset, original, b"\xe9" * len(original)), cache)
        assert caught.value.reason is reason
        assert tracee.memory.read(header - 64, 128) == text
        cache.release(tracee)
    assert worker.finish() == RIGHT


def test_no_patch_across_pages_or_outside_text(worker: Worker) -> None:
    with attach(worker.pid) as tracee:
        tracee.stop()
        cache, _ = prepare(tracee, worker.address("spin_header"))
        page_end = worker.address("spin") // 4096 * 4096 + 4096
        for address, reason in ((page_end - 3, Reason.NO_ROOM), (worker.address("cells"), Reason.PROTECTED_MAPPING),
                                (cache.placement.frame, Reason.PROTECTED_MAPPING)):
            with pytest.raises(Rejected) as caught:
                install(tracee, Patch(address, bytes(5), b"\x90" * 5), cache)
            assert caught.value.reason is reason
        cache.release(tracee)
    assert worker.finish() == RIGHT


def test_a_foreign_change_is_not_undone(worker: Worker) -> None:
    header = worker.address("spin_header")
    with attach(worker.pid) as tracee:
        tracee.stop()
        cache, patch = prepare(tracee, header)
        with pytest.raises(Rejected) as caught:
            remove(tracee, Installed(replace(patch, original=b"\x90" * 5), cache.placement))
        assert caught.value.reason is Reason.NO_ROOM
        cache.release(tracee)
    assert worker.finish() == RIGHT
