from __future__ import annotations

import struct

import pytest

from runtime.sampling import perf_events
from runtime.sampling import samples as sampling
from runtime.sampling.perf_events import Events
from runtime.sampling.samples import (
    Ended,
    Executed,
    Forked,
    InterruptSampler,
    Mapped,
    News,
    Sample,
    Source,
    parse_records,
    sampler_of,
)

SAMPLE, LOST, THROTTLE, COMM, EXIT, FORK, MMAP2 = 9, 2, 5, 3, 4, 7, 10
KERNEL, USER, BY_EXEC = 1, 2, 1 << 13


def record(kind: int, mode: int, *words: int) -> bytes:
    body = struct.pack(f"<{len(words)}Q", *words)
    return struct.pack("<IHH", kind, mode, 8 + len(body)) + body


def news(kind: int, mode: int, *words: int) -> bytes:
    """A record that is no sample; it ends in the numbers of its event."""
    return record(kind, mode, *words, 5, 5)


def sample(address: int, pid: int, tid: int, mode: int = USER, time: int = 0, inherited: int = 5) -> bytes:
    return record(SAMPLE, mode, address, tid << 32 | pid, time, 5, inherited)


def parsed(data: bytes, pid: int, *, children: bool = False) -> tuple[list[Sample | News], int]:
    found, lost = parse_records(data, pid, children)
    return [happened for _, happened in found], lost


def test_only_user_samples_of_the_process_count() -> None:
    data = (sample(0x1000, 7, 7) + sample(0x1000, 7, 8) + sample(0x2000, 9, 9) + record(THROTTLE, 0, 1, 2, 3)
            + sample(0xFFFFFFFF80000000, 7, 7, KERNEL) + record(LOST, 0, 5, 42) + sample(0x3000, 7, 7))
    samples, lost = parsed(data, 7)
    assert samples == [Sample(0x1000, 7), Sample(0x1000, 8), Sample(0x3000, 7)]
    assert lost == 42
    assert parsed(data, 7, children=True)[0] == [
        Sample(0x1000, 7), Sample(0x1000, 8), Sample(0x2000, 9, 9), Sample(0x3000, 7)]


def test_what_becomes_of_processes() -> None:
    path = b"/usr/bin/other\0\0"
    mapped = news(MMAP2, 0, 8 << 32 | 8, 0x400000, 0x2000, 0x1000, 0, 77, 1, 5, *struct.unpack("<2Q", path),
                    8 << 32 | 8, 30)
    data = (news(FORK, 0, 7 << 32 | 8, 7 << 32 | 8, 10, 7 << 32 | 7, 10) + sample(0x400010, 8, 8, time=40)
            + news(FORK, 0, 7 << 32 | 7, 7 << 32 | 12, 10, 7 << 32 | 7, 10)  # a thread
            + news(COMM, BY_EXEC, 8 << 32 | 8, 0x6F, 8 << 32 | 8, 20) + news(COMM, 0, 8 << 32 | 8, 0x6F, 0, 21)
            + mapped + news(EXIT, 0, 7 << 32 | 8, 9 << 32 | 9, 45, 0, 45)
            + news(EXIT, 0, 7 << 32 | 8, 8 << 32 | 8, 50, 0, 50))
    found, lost = parse_records(data, 7, children=True)
    assert sorted(found, key=lambda f: f[0]) == [
        (10, Forked(8, 7)), (10, Forked(7, 7)), (20, Executed(8)),
        (30, Mapped(8, 0x400000, 0x402000, 0x1000, 77, "/usr/bin/other")), (40, Sample(0x400010, 8, 8, 0, 40)),
        (45, Ended(8)), (50, Ended(8))]
    assert lost == 0


def test_what_is_read_late_is_told_in_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def forked(time: int) -> bytes:
        return news(FORK, 0, 7 << 32 | 8, 7 << 32 | 8, time, 7 << 32 | 7, time)

    def executed(time: int) -> bytes:
        return news(COMM, BY_EXEC, 8 << 32 | 8, 0x6F, 8 << 32 | 8, time)

    rounds = iter([[b"", sample(1, 7, 7, time=5) + executed(20)], [forked(10), sample(2, 8, 8, time=30)],
                   [sample(3, 7, 7, time=40), b""], [b"", b""]])
    events = Events.__new__(Events)
    events.refused, events.pid, events.children = None, 7, True
    monkeypatch.setattr(events, "take", lambda: next(rounds))
    sampler = sampler_of(events)
    assert sampler.read_all() == []
    assert sampler.read_all() == [Sample(1, 7, 0, 0, 5), Forked(8, 7), Executed(8)]
    assert sampler.read_all() == [Sample(2, 8, 8, 0, 30)]
    assert sampler.read_all(last=True) == [Sample(3, 7, 0, 0, 40)]


def test_events_that_threads_have_inherited_are_told_apart() -> None:
    assert parsed(sample(1, 7, 7) + sample(1, 7, 8, time=9, inherited=6), 7)[0] == [Sample(1, 7), Sample(1, 8, 0, 6, 9)]


def test_damaged_record_ends_the_parse() -> None:
    assert parsed(sample(1, 7, 7) + struct.pack("<IHH", SAMPLE, USER, 0) + sample(2, 7, 7), 7) == (
        [Sample(1, 7)], 0)


def test_refused_perf_events_fall_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(perf_events, "_event", refuse)
    monkeypatch.setattr(sampling, "_runs", lambda pid: True)
    fallback = sampler_of(Events(1, on_exec=True), lambda: [Sample(5, 1)])
    assert fallback.source is Source.INTERRUPT
    assert "perf_event_paranoid" in fallback.note
    assert fallback.read() == [Sample(5, 1)]
    fallback.pause()
    assert fallback.read() == []
    fallback.resume()
    assert fallback.read() == [Sample(5, 1)]
    fallback.close()
    assert fallback.read() == []
    assert sampler_of(Events(1, on_exec=True)).source is Source.NONE


def test_waiting_program_is_not_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "_runs", lambda pid: False)
    sampler = InterruptSampler(1, lambda: [Sample(5, 1)], "refused")
    assert sampler.read() == []


def test_ring_wraps(monkeypatch: pytest.MonkeyPatch) -> None:
    size = perf_events._RING_PAGES * perf_events._PAGE
    ring = perf_events._Ring.__new__(perf_events._Ring)
    memory = bytearray(perf_events._PAGE + size)
    ring.memory = memory  # type: ignore[assignment]
    first, second = sample(0xAAAA, 7, 7), sample(0xBBBB, 7, 7)
    tail = 3 * size - 36
    data = first + second
    for index, byte in enumerate(data):
        memory[perf_events._PAGE + (tail + index) % size] = byte
    struct.pack_into("<QQ", memory, 1024, tail + len(data), tail)
    assert bytes(ring.take()) == data
    assert ring.take() == b""
