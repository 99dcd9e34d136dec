"""The pages that code accesses: it runs in a shadow whose memory is inaccessible, and gets each page when it faults.

Example: a loop over an array of 8 KiB touches two or three pages of the array, one of code and one of the stack.

In: a shadow that is of no other use afterwards, runs of it, each from where the one before has ended. Out: the pages.
Memory that is ``spared`` is accessible from the beginning, and not reported; nor is the page from which the shadow is
made to call, nor the kernel's own (``always_accessible``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from memopt.ir.reasons import Rejected
from runtime.target import remote_calls
from runtime.target.memory import PAGE, mapping_at, mappings
from runtime.target.remote_calls import Call, UnusedBytes
from runtime.trial.shadow import Shadow, ShadowStopped

MOST_PAGES = 4096  # that fault: more would take longer than anybody waits
_STUB_BYTES = 288
_BATCH = 3  # calls for which such a stub has room

Interval = tuple[int, int]


def always_accessible(shadow: Shadow) -> tuple[Interval, ...]:
    """The pages that the kernel writes while the shadow runs (rseq), and the one from which it is made to call."""
    place = _place(shadow)
    return tuple(whole_pages([shadow.rseq_area(), (place.start, place.end)]))


def _place(shadow: Shadow) -> UnusedBytes:
    """Where the shadow is made to call: in the vDSO, which is no part of the program, or else anywhere."""
    kernel = [m for m in mappings(shadow.pid) if m.path == "[vdso]"]
    try:
        return remote_calls.find_place(shadow.tracee, _STUB_BYTES, kernel)
    except Rejected:
        return remote_calls.find_place(shadow.tracee, _STUB_BYTES)


def touched_pages(shadow: Shadow, spared: Sequence[Interval], runs: Sequence[Callable[[Shadow], object]]) -> set[int]:
    """The addresses of the pages that ``runs`` access outside ``spared``, intervals of whole pages.

    A run that ends otherwise (a system call, too much time) ends all. Raises ``Rejected`` where the shadow cannot be
    prepared.
    """
    place, maps = _place(shadow), mappings(shadow.pid)
    open_to_all = union((*spared, *always_accessible(shadow)))
    closed = [(low, high) for m in maps if m.readable and not m.path.startswith("[v")
              for low, high in without((m.start, m.end), open_to_all)]
    _protect(shadow, place, [(low, high, 0) for low, high in closed])
    access = {"r": 1, "w": 2, "x": 4}
    touched: set[int] = set()
    try:
        for run in runs:
            while True:
                try:
                    run(shadow)
                    break
                except ShadowStopped as stopped:
                    page = None if stopped.fault is None else stopped.fault // PAGE * PAGE
                    mapping = None if page is None else mapping_at(maps, page)
                    if page is None or mapping is None or page in touched or len(touched) == MOST_PAGES or not any(
                            low <= page < high for low, high in closed):
                        raise
                    touched.add(page)
                    _protect(shadow, place, [(page, page + PAGE, sum(access.get(p, 0) for p in mapping.perms))])
    except (ShadowStopped, Rejected):
        pass
    return touched


def _protect(shadow: Shadow, place: UnusedBytes, parts: Sequence[tuple[int, int, int]]) -> None:
    for at in range(0, len(parts), _BATCH):
        calls = [Call(remote_calls.SYS_MPROTECT, (low, high - low, access))
                 for low, high, access in parts[at:at + _BATCH]]
        for result in remote_calls.run(shadow.tracee, calls, place=place):
            remote_calls.check(result, "mprotect in a copy")


def whole_pages(parts: Iterable[Interval]) -> list[Interval]:
    """The pages that hold the bytes ``[low, high)`` of each part, as intervals in order, apart from each other.

    >>> whole_pages([(4090, 4100), (0, 1), (20000, 20000)])
    [(0, 8192)]
    """
    return union((low // PAGE * PAGE, -(-high // PAGE) * PAGE) for low, high in parts if low < high)


def union(parts: Iterable[Interval]) -> list[Interval]:
    """``parts`` in order, with those that touch each other in one."""
    merged: list[Interval] = []
    for low, high in sorted(parts):
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged


def without(part: Interval, taken: Sequence[Interval]) -> Iterator[Interval]:
    """What is left of ``part`` without the intervals ``taken``, which are in order.

    >>> list(without((0, 10), [(2, 4), (8, 12)]))
    [(0, 2), (4, 8)]
    """
    start, end = part
    for low, high in taken:
        if low < end and high > start:
            if start < low:
                yield start, low
            start = high
    if start < end:
        yield start, end
