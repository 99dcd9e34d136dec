"""Code cache: the pages that one version needs in the target: code, statistics, frame, scratch.

In: a stopped ``Tracee``, the address that the code must lie near, sizes. Out: ``CodeCache`` with the ``Placement`` of
its pages. Raises ``Rejected``: NO_MEMORY, NO_ROOM.

The code pages are a memfd. memopt maps it writable, the target maps it read-execute and private, so that a forked
shadow can be given other code. The statistics page is part of the same memfd, but mapped shared, so that memopt can
read its counters even after the target has ended.

The pages take no place that the program needs. The largest free interval of addresses stays as it is but for a few GiB
of some 80 TiB: scratch lies at its edge, where neither brk nor the stack nor the kernel's next mappings grow.

Invariant: no mapping is both writable and executable (W^X). The program's descriptor numbers are the same afterwards,
even if memopt is killed meanwhile, because one stub creates, maps and closes the descriptor.
"""

from __future__ import annotations

import errno
import mmap
import os
import resource
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from memopt.ir.code import (
    FRAME_CHUNK,
    FRAME_LIMIT,
    STATISTICS_BYTES,
    STATISTICS_ENTRIES,
    STATISTICS_ITERATIONS,
    STATISTICS_RUNS,
    Placement,
)
from memopt.ir.frozen import dataclass
from memopt.ir.reasons import Reason, Rejected, VerifyError
from runtime import faults
from runtime.target import remote_calls
from runtime.target.memory import PAGE, Mapping, Memory, mapping_at, mappings
from runtime.target.remote_calls import KEPT, Call, UnusedBytes
from runtime.target.tracee import Tracee, status_field

MEMFD_NAME = "memopt"
STATISTICS_SIZE = PAGE
NO_LIMIT = (1 << 63) - 1
_NONCE = 16  # bytes
MOST_VERSIONS = 64  # in one process, those that were taken out included: their pages stay (runtime/patching/install.py)

_MFD_CLOEXEC, _MFD_EXEC = 1, 0x10
_READ, _WRITE, _EXECUTE = 1, 2, 4
_SHARED, _PRIVATE, _ANONYMOUS, _FIXED_NOREPLACE = 1, 2, 0x20, 0x100000
_MADV_HUGEPAGE = 14
_HUGE_PAGE = 2 << 20

# Distances in bytes that the choice of an address keeps.
_REACH = (1 << 31) - (16 << 20)  # at most, from the code near by: the reach of rel32, less a margin
_MARGIN = 16 << 10  # at least, from other mappings
_HEAP_GROWTH = 64 << 30  # brk starts up to 32 MiB (1 GiB in some kernels) behind .bss and grows upward
_STACK_GROWTH = 8 << 30
_WIDE = 1 << 40  # addresses below a text of which a few GiB do not matter
_LITTLE = 16  # a version takes at most one part in so many of what a limit leaves
_STUB_BYTES = 352  # for ``_mapping_calls``, the longest stub here
TOP = (1 << 47) - PAGE  # end of the 47-bit user address space


@dataclass(frozen=True, slots=True)
class Statistics:
    """The counters of a version (memopt.ir.code): times that its guard was reached, runs, outer iterations that it
    ran."""

    entries: int
    runs: int
    iterations: int


@dataclass(frozen=True, slots=True)
class Gap:
    """Free addresses ``[start, end)``."""

    start: int
    end: int


def free_gaps(maps: Sequence[Mapping], lowest: int) -> tuple[Gap, ...]:
    """The gaps of the memory map, from ``lowest`` on, without the room that brk and the stack may grow into."""
    gaps = []
    heap = min((m.start for m in maps if m.path == "[heap]"), default=TOP)
    position, grows = lowest, False
    base: Mapping | None = None  # .bss is an anonymous mapping right behind the executable's last one
    for mapping in maps:
        if mapping.start >= TOP:
            break
        end = mapping.start - (_STACK_GROWTH if mapping.path == "[stack]" else 0)
        start = position + (_HEAP_GROWTH if grows else 0)
        if end > start:
            gaps.append(Gap(start, end))
        if mapping.path or base is None or position != mapping.start:
            base = mapping
        # brk may grow behind the heap, and behind the executable or its .bss as long as there is no heap.
        grows = mapping.path == "[heap]" or (bool(base.inode) and mapping.start < heap)
        position = max(position, mapping.end)
    return tuple(gaps)


def choose_address(maps: Sequence[Mapping], near: int, size: int, lowest: int) -> int:
    """``choose_near`` in the gaps of a memory map, from address ``lowest`` on."""
    return choose_near(free_gaps(maps, lowest), near, size)


def choose_near(gaps: Sequence[Gap], near: int, size: int) -> int:
    """The address of free pages in ``gaps`` for ``size`` bytes, all in rel32 reach of ``near``, preferably below it.

    In a gap of more than 4 GiB it is 1 GiB below ``near``, away from where the program's next mappings are likely.
    Raises ``Rejected(NO_ROOM)``.
    """
    candidates = []
    for gap in gaps:
        low, high = max(gap.start + _MARGIN, near - _REACH), min(gap.end - _MARGIN, near + _REACH) - size
        low = -(-low // PAGE) * PAGE
        if low > high:
            continue
        wanted = near - (1 << 30) if gap.end - gap.start > 4 << 30 else high
        address = min(max(wanted, low), high) // PAGE * PAGE
        candidates.append((address > near, abs(address - near), max(address, low)))
    if not candidates:
        raise Rejected(Reason.NO_ROOM, f"no free addresses within 2 GiB of {near:#x}")
    return min(candidates)[2]


def choose_scratch(maps: Sequence[Mapping], gaps: Sequence[Gap], size: int, program: str) -> int:
    """The address of ``size`` free bytes in ``gaps``, aligned to 2 MiB, that leaves the largest gap nearly as it is.

    They lie below the executable, whose file is ``program``: the kernel puts a mapping there only if it fits nowhere
    else. If there is room, they are 4 GiB below it, out of the reach that the code of versions needs; the next ones lie
    directly below. Without room there they lie at the lower edge of the largest gap, behind the room of brk.
    Raises ``Rejected(NO_MEMORY)``.
    """
    text = min((m.start for m in maps if m.path == program), default=0)
    limit = text - (2 * _REACH if text > _WIDE else _MARGIN)
    for gap in reversed(gaps):
        address = (min(gap.end, limit) - size) // _HUGE_PAGE * _HUGE_PAGE
        if address >= gap.start + _MARGIN:
            return address
    largest = max(gaps, key=lambda g: g.end - g.start, default=Gap(0, 0))
    address = -(-(largest.start + _MARGIN) // _HUGE_PAGE) * _HUGE_PAGE
    if address + size + _MARGIN > largest.end:
        raise Rejected(Reason.NO_MEMORY, f"no {size} free bytes of address space")
    return address


def _without(gaps: Sequence[Gap], start: int, end: int) -> tuple[Gap, ...]:
    """``gaps`` less the addresses ``[start, end)``, which lie in one of them."""
    return tuple(part for g in gaps for part in (
        (Gap(g.start, start), Gap(end, g.end)) if g.start <= start < g.end else (g,)))


def _program(pid: int) -> str:
    """The executable file of ``pid``, as its memory map shows it; "" if it is gone."""
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def check_limits(pid: int, mapped: int, size: int) -> None:
    """Check that ``size`` bytes for a version take little of what limits leave to ``pid``, which has ``mapped``
    mappings: the program must be able to map what it will. Raises ``Rejected(NO_MEMORY)``."""
    with suppress(OSError, ValueError):
        with open("/proc/sys/vm/max_map_count", encoding="ascii") as file:
            most = int(file.read())
        if mapped > most - most // 16:
            raise Rejected(Reason.NO_MEMORY, f"it has {mapped:,} of {most:,} mappings that a process may have")
    with suppress(OSError):
        for limit, used in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
            most, _ = resource.prlimit(pid, limit)
            words = status_field(pid, used).split()
            left = most - (int(words[0]) << 10) if words else most
            if most != resource.RLIM_INFINITY and _LITTLE * size > left:
                raise Rejected(Reason.NO_MEMORY, f"new code needs {size >> 10} KiB, and a limit leaves it "
                                                 f"{max(0, left) >> 10} KiB")


def _lowest_address() -> int:
    """The lowest address that may be mapped: mmap_min_addr, but at least 64 KiB, so that a null pointer plus a small
    offset still faults."""
    try:
        with open("/proc/sys/vm/mmap_min_addr", encoding="ascii") as file:
            return max(int(file.read()), 64 << 10)
    except (OSError, ValueError):
        return 64 << 10


class CodeCache:
    """The pages of one version. Methods that take a ``tracee`` need it stopped; the others work at any time."""

    def __init__(self, placement: Placement, pages: mmap.mmap) -> None:
        self.placement = placement
        self._pages = pages

    @classmethod
    def create(cls, tracee: Tracee, near: int, code_size: int, frame_size: int, scratch_size: int = 0) -> CodeCache:
        """Map the pages, all but scratch within rel32 reach of ``near``. Sizes in bytes, rounded up to pages.

        The frame is zero, except that its limits on iterations are set to none. Raises ``Rejected``: NO_MEMORY (also
        for RLIMIT_AS, and ``MOST_VERSIONS``), NO_ROOM.
        """
        code_size, frame_size = (-(-size // PAGE) * PAGE for size in (code_size, frame_size))
        total = code_size + STATISTICS_SIZE + frame_size
        # The memory map is read once in this stop: for 60,000 mappings that takes 0.03 s.
        maps = mappings(tracee.pid)
        if sum(m.shared and m.path.startswith(f"/memfd:{MEMFD_NAME} ") for m in maps) >= MOST_VERSIONS:
            raise Rejected(Reason.NO_MEMORY, f"the pages of {MOST_VERSIONS} versions are in the process")
        check_limits(tracee.pid, len(maps), total + scratch_size)
        gaps = free_gaps(maps, _lowest_address())
        code = choose_near(gaps, near, total)
        place = remote_calls.find_place(tracee, _STUB_BYTES, [m for m in maps if m.path])
        statistics = code + code_size
        placement = Placement(code, code_size, statistics + STATISTICS_SIZE, frame_size, statistics, 0, 0)
        cache = cls(placement, _map_in_target(tracee, placement, place))
        try:
            for word in (FRAME_LIMIT, FRAME_CHUNK):
                tracee.memory.write(placement.frame + word, NO_LIMIT.to_bytes(8, "little"))
            if scratch_size:
                scratch_size = -(-scratch_size // _HUGE_PAGE) * _HUGE_PAGE
                cache._map_scratch(tracee, choose_scratch(maps, _without(gaps, code, code + total), scratch_size,
                                                          _program(tracee.pid)), scratch_size, place)
        except Rejected:
            unmap(tracee, cache.placement, place)
            raise
        return cache

    def as_in_a_file(self, frame_size: int) -> CodeCache:
        """This cache, with all of the frame's bytes but the first ``frame_size`` as scratch memory: near the code, as
        it is in a file (``Placement.in_file``)."""
        place = self.placement
        self.placement = replace(place, frame_size=frame_size, scratch=place.frame + frame_size,
                                 scratch_size=place.frame_size - frame_size, in_file=True)
        return self

    def reserve_scratch(self, tracee: Tracee, size: int) -> Placement:
        """Map ``size`` bytes of private scratch memory, aligned to 2 MiB, in huge pages where possible.

        It replaces scratch memory that was reserved before. Raises ``Rejected(NO_MEMORY)``.
        """
        _unmap(tracee, (self.placement.scratch, self.placement.scratch_size))
        size = -(-size // _HUGE_PAGE) * _HUGE_PAGE
        maps = mappings(tracee.pid)
        address = choose_scratch(maps, free_gaps(maps, _lowest_address()), size, _program(tracee.pid))
        return self._map_scratch(tracee, address, size, remote_calls.find_place(tracee, _STUB_BYTES, maps))

    def _map_scratch(self, tracee: Tracee, address: int, size: int, place: UnusedBytes) -> Placement:
        result, _ = remote_calls.run(tracee, (
            Call(remote_calls.SYS_MMAP,
                 (address, size, _READ | _WRITE, _PRIVATE | _ANONYMOUS | _FIXED_NOREPLACE, -1, 0)),
            Call(remote_calls.SYS_MADVISE, (address, size, _MADV_HUGEPAGE))),  # fails without huge pages: harmless
            place=place)
        self.placement = replace(self.placement, scratch=_at(address, result, "scratch memory"), scratch_size=size)
        return self.placement

    def write_code(self, data: bytes, tracee: Tracee) -> None:
        """Write ``data`` to the start of the code pages, fill the rest with int3 (0xCC), and read it back.

        It is read through the target. Precondition: no thread executes there.
        """
        if len(data) > self.placement.code_size:
            raise VerifyError(f"{len(data)} bytes of code for {self.placement.code_size} bytes of pages")
        self._confirm(tracee)
        faults.point("codecache.write")
        self._pages[:self.placement.code_size] = data + b"\xcc" * (self.placement.code_size - len(data))
        if tracee.memory.read(self.placement.code, len(data)) != data:
            raise VerifyError(f"the code at {self.placement.code:#x} does not read back as written")

    def set_chunk(self, memory: Memory, iterations: int) -> None:
        """Let the version go through its guards again after so many iterations; the target may run meanwhile."""
        memory.write(self.placement.frame + FRAME_CHUNK, iterations.to_bytes(8, "little"))

    def read_statistics(self) -> Statistics:
        """The present values of the counters, also after the target has ended."""
        return Statistics(*(self._word(offset) for offset in (STATISTICS_ENTRIES, STATISTICS_RUNS,
                                                              STATISTICS_ITERATIONS)))

    def clear_statistics(self) -> None:
        """Set all counters to 0."""
        start = self.placement.code_size
        self._pages[start:start + STATISTICS_BYTES] = bytes(STATISTICS_BYTES)

    def write_record(self, offset: int, data: bytes) -> None:
        """Write ``data`` at ``offset`` of the statistics page, which must be behind the counters."""
        if not STATISTICS_BYTES <= offset <= STATISTICS_SIZE - len(data):
            raise VerifyError(f"{len(data)} bytes at {offset} do not fit the statistics page")
        start = self.placement.code_size + offset
        self._pages[start:start + len(data)] = data

    def release(self, tracee: Tracee) -> None:
        """Unmap all pages in the target, if it still has them. Precondition: the version was never in service, so that
        nobody can be in it. Raises ``Rejected`` as ``remote_calls.run`` does."""
        if self._in_target(tracee):  # else it has executed another program, and anything may lie at these addresses
            unmap(tracee, self.placement)

    def close(self) -> None:
        """Unmap memopt's own view of the pages; the target keeps them."""
        self._pages.close()

    def _word(self, offset: int) -> int:
        start = self.placement.code_size + offset
        return int.from_bytes(self._pages[start:start + 8], "little")

    def _in_target(self, tracee: Tracee) -> bool:
        """Whether the target has these pages: it sees what memopt writes to them."""
        start, size = self.placement.code_size + STATISTICS_SIZE - _NONCE, _NONCE
        before, nonce = self._pages[start:start + size], os.urandom(size)
        self._pages[start:start + size] = nonce
        seen = tracee.memory.read_some(self.placement.statistics + STATISTICS_SIZE - size, size)
        self._pages[start:start + size] = before
        return seen == nonce

    def _confirm(self, tracee: Tracee) -> None:
        """Check W^X in the target's memory map: its code pages are read-execute. Raises ``VerifyError``."""
        maps = mappings(tracee.pid)
        code = mapping_at(maps, self.placement.code)
        if code is None or code.perms != "r-x" or code.end < self.placement.code + self.placement.code_size:
            raise VerifyError(f"the code pages are not mapped read-execute: {code}")


def map_alike(tracee: Tracee, placement: Placement) -> None:
    """Map empty private pages at the addresses of ``placement`` in a forked copy that is older than those pages.

    Raises ``Rejected`` if one of the addresses is in use in the copy.
    """
    kind = _PRIVATE | _ANONYMOUS | _FIXED_NOREPLACE
    scratch = placement.scratch, placement.scratch_size
    parts = ((placement.code, placement.code_size, _READ | _EXECUTE),
             (placement.statistics, STATISTICS_SIZE + placement.frame_size, _READ | _WRITE),
             (*scratch, _READ | _WRITE))
    calls = [Call(remote_calls.SYS_MMAP, (start, size, access, kind, -1, 0)) for start, size, access in parts]
    results = remote_calls.run(tracee, (*calls, Call(remote_calls.SYS_MADVISE, (*scratch, _MADV_HUGEPAGE))))
    for (start, *_), result in zip(parts, results, strict=False):
        _at(start, result, "mmap in a copy")


def unmap(tracee: Tracee, placement: Placement, place: UnusedBytes | None = None) -> None:
    """Unmap the pages of ``placement``, scratch included; same precondition as ``CodeCache.release``."""
    size = placement.code_size + STATISTICS_SIZE + placement.frame_size
    _unmap(tracee, (placement.code, size), (placement.scratch, placement.scratch_size), place=place)


def unmap_scratch(tracee: Tracee, placement: Placement) -> None:
    """Unmap the scratch memory of ``placement``, which must not be in use."""
    _unmap(tracee, (placement.scratch, placement.scratch_size))


def _unmap(tracee: Tracee, *pages: tuple[int, int], place: UnusedBytes | None = None) -> None:
    """Unmap ``(address, size)`` of each of ``pages``."""
    calls = [Call(remote_calls.SYS_MUNMAP, part) for part in pages if part[1]]
    for result in remote_calls.run(tracee, calls, place=place) if calls else ():
        remote_calls.check(result, "munmap")


def _map_in_target(tracee: Tracee, placement: Placement, place: UnusedBytes) -> mmap.mmap:
    """Create the memfd in the target and map it there and in memopt; after a failure nothing of it is left."""
    pages = _attempt(tracee, placement, place, _MFD_CLOEXEC | _MFD_EXEC)
    if pages is None:  # MFD_EXEC is unknown before Linux 6.3
        pages = _attempt(tracee, placement, place, _MFD_CLOEXEC)
    if pages is None:
        raise Rejected(Reason.NO_MEMORY, "memfd_create in the target: Invalid argument")
    return pages


def _attempt(tracee: Tracee, placement: Placement, place: UnusedBytes, flags: int) -> mmap.mmap | None:
    """``_map_in_target`` with these memfd_create ``flags``; None if the kernel does not know them."""
    opened: list[mmap.mmap] = []
    results: list[int] = []

    def open_here(index: int, result: int) -> None:
        if index == 0 and result >= 0:
            opened.append(map_here(tracee.pid, result, placement.code_size + STATISTICS_SIZE))

    wanted = ((placement.code, placement.code_size), (placement.statistics, STATISTICS_SIZE),
              (placement.frame, placement.frame_size))
    try:
        remote_calls.run(tracee, _mapping_calls(placement, flags), place=place, observe=open_here, results=results)
        remote_calls.check(results[0], "memfd_create in the target")
        for (address, _), result in zip(wanted, results[1:], strict=False):
            _at(address, result, "mmap in the target")
        return opened[0]
    except (OSError, Rejected) as error:
        if not tracee.stopped:
            raise
        # Unmap only what these calls have mapped: the other addresses may hold memory of the program.
        remote_calls.run(tracee, [Call(remote_calls.SYS_MUNMAP, (result, size))
                            for (_, size), result in zip(wanted, results[1:], strict=False) if result > 0], place=place)
        if results[:1] == [-errno.EINVAL]:
            return None
        if isinstance(error, Rejected):
            raise
        raise Rejected(Reason.NO_MEMORY, f"mapping the code pages: {error.strerror}") from error


def _mapping_calls(placement: Placement, flags: int) -> tuple[Call, ...]:
    return (
        Call(remote_calls.SYS_MEMFD_CREATE, (MEMFD_NAME.encode() + b"\0", flags), keep=True),
        Call(remote_calls.SYS_MMAP, (placement.code, placement.code_size, _READ | _EXECUTE, _PRIVATE | _FIXED_NOREPLACE,
                               KEPT, 0)),
        Call(remote_calls.SYS_MMAP, (placement.statistics, STATISTICS_SIZE, _READ | _WRITE, _SHARED | _FIXED_NOREPLACE,
                               KEPT, placement.code_size)),
        Call(remote_calls.SYS_MMAP, (placement.frame, placement.frame_size, _READ | _WRITE,
                               _PRIVATE | _ANONYMOUS | _FIXED_NOREPLACE, -1, 0)),
        Call(remote_calls.SYS_CLOSE, (KEPT,)),
    )


def map_here(pid: int, descriptor: int, size: int) -> mmap.mmap:
    """Resize the memfd that ``pid`` has open to ``size`` bytes and map it in memopt. Raises ``OSError``.

    A process that shares the descriptors of ``pid`` may have put another file in its place, which is left alone.
    """
    own = os.open(f"/proc/{pid}/fd/{descriptor}", os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not os.readlink(f"/proc/self/fd/{own}").startswith(f"/memfd:{MEMFD_NAME}"):
            raise OSError(errno.EBADF, "the new file is another one by now")
        os.ftruncate(own, size)
        return mmap.mmap(own, size)
    finally:
        os.close(own)


def _at(address: int, result: int, what: str) -> int:
    """``result`` of a mmap call, if it is ``address``. Raises ``Rejected(NO_ROOM)`` if it is another address, as from
    kernels before 4.17, which take MAP_FIXED_NOREPLACE for a hint."""
    if remote_calls.check(result, what) != address:
        raise Rejected(Reason.NO_ROOM, f"{what}: {address:#x} was asked for, {result:#x} given")
    return address
