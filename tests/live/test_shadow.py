"""Shadow runs: right, repeatable, and unnoticed by the worker, its parent and the outside."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from memopt.ir.code import CompiledRegion, Placement
from memopt.ir.reasons import Reason, Rejected
from runtime.patching import code_cache
from runtime.patching.code_cache import CodeCache, map_alike
from runtime.patching.install import jump_bytes
from runtime.target import remote_calls
from runtime.target.memory import PAGE, Mapping, mappings
from runtime.target.ptrace import OPTION_EXITKILL
from runtime.target.tracee import Tracee, attach
from runtime.trial import isolation, memory_budget
from runtime.trial import shadow as shadow_module
from runtime.trial.shadow import End, Shadow, ShadowStopped, compare, copies_of, fork_shadow, reap
from runtime.trial.timing import own_pages, run_original, write_code
from tests.support.targets import RIGHT, Worker, children_of

LIMIT_S = 20.0
_SYS_KCMP, _KCMP_FILES = 312, 2


@pytest.fixture(params=["child", "foreign"])
def worker(request: pytest.FixtureRequest) -> Iterator[Worker]:
    with Worker("timer", foreign=request.param == "foreign") as started:
        yield started


def fork(worker: Worker, count: int = 1) -> list[Shadow]:
    with attach(worker.pid) as tracee:
        tracee.stop()
        before, mask = tracee.registers().outside_call(), tracee.signal_mask()
        shadows = [fork_shadow(tracee, count) for _ in range(count)]
        assert tracee.registers() == before
        assert tracee.signal_mask() == mask
        for shadow in shadows:
            assert shadow.registers() == before
    return shadows


def drop(worker: Worker, *shadows: Shadow) -> None:
    for shadow in shadows:
        shadow.kill()
    with attach(worker.pid) as tracee:
        tracee.stop()
        reap(tracee, shadows)
    assert worker.children() == []


def test_two_shadows_agree_and_nobody_notices(worker: Worker) -> None:
    first, second = fork(worker, 2)
    target = worker.address("spin_header")
    for shadow in (first, second):
        assert shadow.run_to(target, LIMIT_S) > 0
        assert shadow.run_to(target, LIMIT_S, hits=100) > 0
        assert shadow.registers().rip == target
    assert compare(first, second) == ()
    assert replace(first.registers(), eflags=0) == replace(second.registers(), eflags=0)
    assert first.vector_state() == second.vector_state()
    drop(worker, first, second)
    assert worker.finish() == RIGHT


def test_the_first_of_several_places_is_where_it_stops(worker: Worker) -> None:
    first, second = fork(worker, 2)
    target = worker.address("spin_header")
    second.run_to(target, LIMIT_S)
    first.run_out((worker.address("main"), target), LIMIT_S)
    assert first.registers().rip == target
    assert compare(first, second) == ()  # no breakpoint stays
    with pytest.raises(ShadowStopped):
        first.run_out((worker.address("main"),), 0.01)
    drop(worker, first, second)
    assert worker.finish() == RIGHT


def test_copies_of_a_copy_cost_the_program_no_stop(worker: Worker) -> None:
    kept, = fork(worker)
    kept.run_to(worker.address("mix"), LIMIT_S)
    with attach(worker.pid) as tracee:
        tracee.stop()
        cache = CodeCache.create(tracee, worker.address("mix"), 2 * PAGE, PAGE, PAGE)
    code, scratch = cache.placement.code, cache.placement.scratch
    before, state, at = mappings(kept.pid), kept.vector_state(), kept.registers()
    with copies_of(kept, 2) as (first, second):
        assert first.registers() == second.registers() == at
        assert first.vector_state() == second.vector_state() == state
        for copy in (first, second):
            map_alike(copy.tracee, cache.placement)
            copy.write(code, b"\x90\xc3")
            copy.write(scratch, b"\x01")
            assert copy.registers() == at
            own = {m.start: m for m in mappings(copy.pid)}
            assert own[code].perms == "r-x"
            assert not any(m.writable and (m.executable or m.shared) for m in own.values())
            copy.run_to(worker.address("round_done"), LIMIT_S)
        assert compare(first, second) == ()
        second.write(worker.address("cells"), bytes(255 - byte for byte in second.read(worker.address("cells"), 1)))
        assert len(compare(first, second)) == 1
        with pytest.raises(Rejected):
            map_alike(first.tracee, cache.placement)  # there is something by now
    assert (mappings(kept.pid), kept.vector_state(), kept.registers()) == (before, state, at)
    assert children_of(kept.pid) == []
    kept.run_to(worker.address("round_done"), LIMIT_S)
    with attach(worker.pid) as tracee:
        tracee.stop()
        cache.release(tracee)
    drop(worker, kept)
    assert worker.finish() == RIGHT


def test_copies_of_a_copy_end_with_memopt_too(worker: Worker) -> None:
    kept, = fork(worker)
    with copies_of(kept, 1):
        pass
    assert kept.tracee.options & OPTION_EXITKILL
    drop(worker, kept)


def test_pages_become_the_copys_own(worker: Worker) -> None:
    shadow, = fork(worker)
    shadow.run_to(worker.address("spin_header"), LIMIT_S)
    before, cells = shadow.registers(), worker.address("cells")
    contents = shadow.read(cells, 4096 * 8)
    code = Placement(worker.address("mix"), PAGE, 0, 0, 0, 0, 0)
    compiled = cast(CompiledRegion, SimpleNamespace(placement=code, code=b""))
    own_pages(shadow, compiled, [(cells + 100, cells + 4096 * 8), (8, 16), (cells, cells + 8)])
    written = shadow.written_pages()
    for page in range(cells // PAGE * PAGE, cells + 4096 * 8, PAGE):
        assert any(start <= page < end for start, end in written)
    assert shadow.registers() == before
    assert shadow.read(cells, 4096 * 8) == contents
    drop(worker, shadow)
    assert worker.finish() == RIGHT


def test_counted_iterations_are_those_that_were_stopped_at(worker: Worker) -> None:
    counted, stopped = fork(worker, 2)
    header, code = worker.address("spin_header"), worker.address("mix")
    statistics = -(-worker.address("cells") // PAGE) * PAGE
    displaced = counted.read(header, 5)
    compiled = cast(CompiledRegion, SimpleNamespace(
        region=SimpleNamespace(header=header, displaced=displaced, period=1),
        placement=Placement(code, PAGE, 0, 0, statistics, 0, 0), code=displaced + jump_bytes(code + 5, header + 5)))
    for shadow in (counted, stopped):
        shadow.run_to(header, LIMIT_S)
    write_code(counted, compiled)
    for iterations in (0, 1, 99):
        assert run_original(counted, compiled, iterations, LIMIT_S) >= 0
    stopped.run_to(header, LIMIT_S, hits=100)
    assert counted.registers() == stopped.registers()
    assert compare(counted, stopped, [(code, code + PAGE), (statistics, statistics + PAGE)]) == ()
    drop(worker, counted, stopped)
    assert worker.finish() == RIGHT


def test_written_pages_and_differences(worker: Worker) -> None:
    first, second = fork(worker, 2)
    for shadow in (first, second):
        shadow.run_to(worker.address("mix"), LIMIT_S)
        shadow.run_to(worker.address("round_done"), LIMIT_S)
    cells = worker.address("cells")
    written = first.written_pages()
    for page in range(cells // PAGE * PAGE, cells + 4096 * 8, PAGE):
        assert any(start <= page < end for start, end in written)
    assert not any(start <= worker.address("again") + 4 * PAGE < end for start, end in written)
    assert compare(first, second) == ()
    for place in (cells + 40, cells + 20000):
        second.write(place, bytes(255 - byte for byte in second.read(place, 2)))
    places = [difference.address // 8 * 8 for difference in compare(first, second)]
    assert places == [(cells + 40) // 8 * 8, (cells + 20000) // 8 * 8]
    assert len(compare(first, second, ignore=((cells + 40, cells + 48),))) == 1
    assert len(compare(first, second, limit=1)) == 1
    drop(worker, first, second)
    assert worker.finish() == RIGHT


def test_a_shadow_that_took_another_way_is_seen(worker: Worker) -> None:
    first, second = fork(worker, 2)
    for shadow, hits in ((first, 1), (second, 2)):
        shadow.run_to(worker.address("round_done"), LIMIT_S, hits=hits)
    assert compare(first, second)
    drop(worker, first, second)
    assert worker.finish() == RIGHT


def test_system_calls_do_not_happen(worker: Worker) -> None:
    shadow, = fork(worker)
    # SIGUSR1's effect without the signal: the shadow goes on to print its result.
    shadow.write(worker.address("stop"), b"\x01")
    shadow.write(worker.address("alarms"), b"\x01")  # timers are not inherited
    with pytest.raises(ShadowStopped) as caught:
        shadow.run_to(worker.address("main"), LIMIT_S)
    assert caught.value.reason is End.SYSTEM_CALL
    assert "number 1 " not in caught.value.detail  # what it writes counts as written
    drop(worker, shadow)
    assert worker.finish() == RIGHT


def test_a_fork_in_a_signal_handler_returns_from_it(worker: Worker) -> None:
    handler = range(worker.address("on_alarm"), worker.address("on_alarm") + 16)
    with attach(worker.pid) as tracee:
        tracee.stop()
        while tracee.registers().rip not in handler:
            tracee.run_for(0.002)
            tracee.stop()
        shadow = fork_shadow(tracee)
    alarms = int.from_bytes(shadow.read(worker.address("alarms"), 4), "little")
    shadow.run_to(worker.address("round_done"), LIMIT_S, hits=3)
    assert int.from_bytes(shadow.read(worker.address("alarms"), 4), "little") == alarms + 1
    os.kill(shadow.pid, signal.SIGUSR1)  # signals are blocked again
    shadow.run_to(worker.address("round_done"), LIMIT_S)
    assert shadow.read(worker.address("stop"), 4) == bytes(4)
    drop(worker, shadow)
    assert worker.finish() == RIGHT


def test_faults_and_timeouts_end_the_trial(worker: Worker) -> None:
    first, second = fork(worker, 2)
    first.set_registers(replace(first.registers(), rip=8))
    with pytest.raises(ShadowStopped, match="SIGSEGV") as caught:
        first.run_to(worker.address("main"), LIMIT_S)
    assert caught.value.reason is End.SIGNAL
    with pytest.raises(ShadowStopped) as caught:
        second.run_to(worker.address("main"), 0.02)
    assert caught.value.reason is End.TIMEOUT
    second.run_to(worker.address("spin_header"), LIMIT_S)  # it may be used on
    drop(worker, first, second)
    assert worker.finish() == RIGHT


def test_only_processor_time_counts_towards_a_timeout(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where others have the processor, a copy takes longer and gets as far."""
    shadow, = fork(worker)
    used = iter([0.0] * 8)
    monkeypatch.setattr(Shadow, "_processor_time", lambda _: next(used, 1.0))
    with pytest.raises(ShadowStopped) as caught:
        shadow.run_to(worker.address("main"), 0.02)
    assert caught.value.reason is End.TIMEOUT
    assert next(used, None) is None
    drop(worker, shadow)
    assert worker.finish() == RIGHT


def test_signals_to_the_group_do_not_reach_a_shadow(worker: Worker) -> None:
    shadow, = fork(worker)
    for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGTSTP, signal.SIGSTOP):
        os.kill(shadow.pid, number)
    shadow.run_to(worker.address("round_done"), LIMIT_S)
    assert shadow.read(worker.address("stop"), 4) == bytes(4)
    drop(worker, shadow)
    assert worker.finish() == RIGHT


def test_shared_memory_is_not_written_by_a_shadow() -> None:
    """One that would write it is dropped; memopt's own statistics page is the shadow's own."""
    with Worker("shared") as worker:
        with attach(worker.pid) as tracee:
            tracee.stop()
            cache = CodeCache.create(tracee, tracee.registers().rip, 4096, 4096)
            shadow = fork_shadow(tracee)
        shadow.write(cache.placement.statistics, b"\x09")
        shadow.write(cache.placement.code, b"\x99")
        assert shadow.read(cache.placement.statistics, 1) == b"\x09"
        assert cache.read_statistics().entries == 0
        with attach(worker.pid) as tracee:
            assert tracee.memory.read(cache.placement.code, 1) == b"\0"
        with pytest.raises(ShadowStopped, match="SIGSEGV"):
            shadow.run_to(worker.address("round_done"), LIMIT_S)
        drop(worker, shadow)
        assert worker.finish() == RIGHT


@pytest.mark.parametrize("closes", [True, False])
def test_a_copy_has_no_descriptors(worker: Worker, monkeypatch: pytest.MonkeyPatch, closes: bool) -> None:
    """Neither where the kernel closes all at once, nor where it is too old to; nor has a copy of a copy."""
    if not closes:
        monkeypatch.setattr(isolation, "closes_ranges", lambda: False)
    before = sorted(os.listdir(f"/proc/{worker.pid}/fd"))
    with attach(worker.pid) as tracee:
        tracee.stop()
        shadow = fork_shadow(tracee)
        assert os.listdir(f"/proc/{shadow.pid}/fd") == []  # while the program is stopped
        assert os.readlink(f"/proc/{shadow.pid}/cwd") == "/"
    assert sorted(os.listdir(f"/proc/{worker.pid}/fd")) == before != []
    assert os.readlink(f"/proc/{worker.pid}/cwd") == os.getcwd()
    with copies_of(shadow, 1) as (copy,):
        assert os.listdir(f"/proc/{copy.pid}/fd") == []
        copy.run_to(worker.address("round_done"), LIMIT_S)
    shadow.run_to(worker.address("round_done"), LIMIT_S)
    assert sorted(os.listdir(f"/proc/{worker.pid}/fd")) == before
    drop(worker, shadow)
    assert worker.finish() == RIGHT


def test_a_copy_never_has_descriptors_of_its_own(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if memopt dies before it has closed them: until then they are the program's, in one table."""
    tables: list[int] = []

    def fail(child: Tracee, *_: object) -> None:
        tables.append(ctypes.CDLL(None).syscall(_SYS_KCMP, worker.pid, child.pid, _KCMP_FILES, 0, 0))
        raise Rejected(Reason.NO_MEMORY, "memopt is gone")

    before = sorted(os.listdir(f"/proc/{worker.pid}/fd"))
    monkeypatch.setattr(isolation, "isolate", fail)
    with attach(worker.pid) as tracee:
        tracee.stop()
        with pytest.raises(Rejected):
            fork_shadow(tracee)
    assert tables in ([0], [-1])  # the same table; or the kernel does not tell
    assert sorted(os.listdir(f"/proc/{worker.pid}/fd")) == before
    if worker.foreign:
        with attach(worker.pid) as tracee:
            tracee.stop()
            remote_calls.run(tracee, [remote_calls.Call(remote_calls.SYS_WAIT4, (-1, 0, 0x40000001, 0))])
    assert worker.finish() == RIGHT


def test_many_shared_mappings_take_few_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory map of the program is read once in a stop, and a copy is isolated by a few calls."""
    calls: list[int] = []
    maps_read: list[int] = []

    def counted_run(tracee: Tracee, made: Sequence[remote_calls.Call], **more: Any) -> tuple[int, ...]:
        calls.append(len(made))
        return run(tracee, made, **more)

    def counted_mappings(pid: int) -> tuple[Mapping, ...]:
        maps_read.append(pid)
        return mappings(pid)

    run = remote_calls.run
    monkeypatch.setattr(remote_calls, "run", counted_run)
    for module in (shadow_module, code_cache, remote_calls, isolation):
        monkeypatch.setattr(module, "mappings", counted_mappings)
    with Worker("many", "shared") as worker:
        with attach(worker.pid) as tracee:
            tracee.stop()
            shadow = fork_shadow(tracee)
            assert maps_read.count(worker.pid) == 1
            assert len(calls) < 10
            program = {m.start: m for m in mappings(worker.pid)}
            own = {m.start: m for m in mappings(shadow.pid)}
            assert len(program) > 3000
            assert {m.start for m in shadow.maps()} == set(program)
            assert sum(m.shared and m.writable for m in program.values()) > 1000
            assert not any(m.shared and m.writable for m in own.values())
            assert set(own) == set(program)  # no table stays
            maps_read.clear()
            CodeCache.create(tracee, tracee.registers().rip, PAGE, PAGE, PAGE).release(tracee)
            assert maps_read.count(worker.pid) <= 2
        drop(worker, shadow)
        assert worker.finish() == RIGHT


def test_code_written_later_is_seen_by_older_shadows(worker: Worker) -> None:
    with attach(worker.pid) as tracee:
        tracee.stop()
        cache = CodeCache.create(tracee, tracee.registers().rip, 4096, 4096)
        shadow = fork_shadow(tracee)
        cache.write_code(b"\x90\x90\x90", tracee)
    shadow.set_registers(replace(shadow.registers(), rip=cache.placement.code))
    shadow.run_to(cache.placement.code + 2, LIMIT_S)  # a breakpoint in the code cache, this copy's only
    with attach(worker.pid) as tracee:
        assert tracee.memory.read(cache.placement.code, 4) == b"\x90\x90\x90\xcc"
    drop(worker, shadow)
    assert worker.finish() == RIGHT


def test_a_shadow_ends_with_memopt(worker: Worker) -> None:
    """A tracer that dies takes its shadow along, whatever the shadow is doing."""
    ready = os.pipe()
    memopt = os.fork()
    if not memopt:
        shadow, = fork(worker)
        os.write(ready[1], shadow.pid.to_bytes(4, "little"))
        try:
            shadow.run_to(worker.address("main"), 60)
        finally:
            os._exit(1)
    pid = int.from_bytes(os.read(ready[0], 4), "little")
    worker.breathe()
    assert os.path.exists(f"/proc/{pid}")
    os.kill(memopt, signal.SIGKILL)
    os.waitpid(memopt, 0)
    deadline = 1000
    while _alive(pid) and deadline:
        worker.breathe(0.005)
        deadline -= 1
    assert deadline
    assert worker.finish().startswith("right children=0")


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(") ")[2][0] not in "ZX"
    except FileNotFoundError:
        return False


def test_no_memory_no_shadow(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_budget, "available", lambda _: 1 << 20)
    with attach(worker.pid) as tracee:
        tracee.stop()
        with pytest.raises(Rejected) as caught:
            fork_shadow(tracee)
        assert caught.value.reason is Reason.NO_MEMORY
    assert worker.children() == []
    assert worker.finish() == RIGHT
