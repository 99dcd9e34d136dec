"""Commits a patch in the live process, and removes it.

Example: at the header of the loop, ``48 8b 04 c8 48 ...`` becomes ``e9 xx xx xx xx``, a jump to the version's guard.

In: a stopped ``Tracee``, a ``Patch``, the ``CodeCache`` of the version. Out: the patched process, stopped. Raises
``Rejected``: NO_ROOM, BLOCKED, PROTECTED_MAPPING.

The commit is one write of a few bytes within one page. Meanwhile every thread is stopped, and none stands inside the
displaced bytes or will return into them. Before it, a record of the patch is written to the statistics page, so that
any later memopt can find the patch and undo it.

Invariant: if memopt is killed at any step, the process has either its original bytes or a complete, recorded patch.
"""

from __future__ import annotations

import struct
import time
from collections import abc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType

from memopt.ir.code import Placement
from memopt.ir.reasons import Reason, Rejected
from runtime import faults
from runtime.patching.code_cache import MEMFD_NAME, STATISTICS_SIZE, CodeCache, unmap
from runtime.target.memory import PAGE, Mapping, Memory, mapping_at, mappings
from runtime.target.remote_calls import stack_values
from runtime.target.tracee import Tracee, threads

RECORD_OFFSET = 256  # in the statistics page
_MAGIC = b"MEMOPT\0\0"
_VERSION = 1
_HEADER = struct.Struct("<8sII6Q")  # magic, version, patches; code, frame, scratch: address and size
_ENTRY = struct.Struct("<QQ16s16s")  # address, length, original, replacement
_MOST_PATCHES = (STATISTICS_SIZE - RECORD_OFFSET - _HEADER.size) // _ENTRY.size
_SYSCALL_BYTES = 2


@dataclass(frozen=True, slots=True)
class Patch:
    """Replaces the ``original`` bytes at ``address`` by ``replacement``: equally many, at most 16."""

    address: int
    original: bytes
    replacement: bytes

    @property
    def end(self) -> int:
        """The address behind the last displaced byte."""
        return self.address + len(self.original)

    def __str__(self) -> str:
        return f"{self.address:#x}: {self.original.hex()} -> {self.replacement.hex()}"


@dataclass(frozen=True, slots=True)
class Installed:
    """A patch in force in a process, and the pages of the version that it leads to."""

    patch: Patch
    placement: Placement


@dataclass(frozen=True, slots=True)
class Unpatched:
    """Reads the code of a process as it was before the ``patches`` in force."""

    memory: Memory
    patches: tuple[Patch, ...]

    def read(self, address: int, size: int) -> bytes:
        """``Memory.read`` of the original code."""
        return self._restored(address, self.memory.read(address, size))

    def read_some(self, address: int, size: int) -> bytes:
        """``Memory.read_some`` of the original code."""
        return self._restored(address, self.memory.read_some(address, size))

    def _restored(self, start: int, code: bytes) -> bytes:
        for patch in self.patches:
            low, high = max(start, patch.address), min(start + len(code), patch.end)
            if low < high:
                original = patch.original[low - patch.address:high - patch.address]
                code = code[:low - start] + original + code[high - start:]
        return code


@contextmanager
def unpatched(pid: int) -> Iterator[Unpatched]:
    """A reader of the original code of ``pid``. Raises ``Rejected`` if memopt may not read its memory."""
    memory = Memory(pid)
    try:
        yield Unpatched(memory, tuple(installed.patch for installed in find_installed(pid)))
    finally:
        memory.close()


def jump(source: int, target: int, original: bytes) -> Patch:
    """The patch that writes a jump from ``source`` to ``target`` over the first 5 bytes of ``original``.

    Raises ``Rejected(NO_ROOM)``: ``original`` is shorter, or ``target`` is out of reach.
    """
    if len(original) < 5:
        raise Rejected(Reason.NO_ROOM, f"{len(original)} bytes at {source:#x} are too few for a jump")
    return Patch(source, original[:5], jump_bytes(source, target))


def jump_bytes(source: int, target: int) -> bytes:
    """The 5 bytes of ``jmp rel32`` at ``source``. Raises ``Rejected(NO_ROOM)`` if ``target`` is out of reach."""
    displacement = target - (source + 5)
    if not -(1 << 31) <= displacement < 1 << 31:
        raise Rejected(Reason.NO_ROOM, f"{target:#x} is out of reach of a jump at {source:#x}")
    return b"\xe9" + displacement.to_bytes(4, "little", signed=True)


def install(tracee: Tracee, patch: Patch, cache: CodeCache, timeout_s: float = 1.0,
            moved: abc.Mapping[int, int] = MappingProxyType({}), code: Sequence[tuple[int, bytes]] = ()) -> None:
    """Commit ``patch``, whose replacement leads into ``cache``; the target is left stopped.

    ``timeout_s``: how long to look for a moment when no thread stands inside the displaced bytes; between the attempts
    the target runs.
    ``moved``: code that must not be executed at its old place any more: old to new address of each instruction. A
    thread that stands in it is set to the copy. That happens before the commit, because the copy does the same with and
    without the patch.
    ``code``: the code that the version stands for, as (address, bytes). All of it is compared in the same stop in which
    the patch is written, so that code which was replaced since it was lifted gets no patch.
    Raises ``Rejected``: CODE_CHANGED (the bytes there are others), NO_ROOM (the patch would cross a page border, or
    there are sleeping threads, which cannot be moved), BLOCKED (no such moment), PROTECTED_MAPPING.
    """
    _check_place(tracee.pid, patch)
    if moved and len(threads(tracee.pid)) > 1:
        raise Rejected(Reason.NO_ROOM, "the patch needs the loop to move, and a sleeping thread may stand in it")
    _stop_outside(tracee, timeout_s, lambda: _movable(tracee, patch, moved))
    found = tracee.memory.read(patch.address, len(patch.original))
    if found != patch.original:
        raise Rejected(Reason.CODE_CHANGED, f"{patch.address:#x} holds {found.hex()}, not {patch.original.hex()}")
    for address, lifted in code:
        if tracee.memory.read_some(address, len(lifted)) != lifted:
            raise Rejected(Reason.CODE_CHANGED, f"in the {len(lifted)} bytes at {address:#x}")
    _record(cache, patch)
    for tid in tracee.threads:
        registers = tracee.registers(tid)
        if registers.rip in moved and registers.rip != patch.address:
            tracee.set_registers(replace(registers, rip=moved[registers.rip]), tid)
    faults.point("install.commit")
    tracee.memory.write(patch.address, patch.replacement)


def remove(tracee: Tracee, installed: Installed, timeout_s: float = 1.0) -> bool:
    """Restore the original bytes, then unmap the version's pages; the target is left stopped.

    False if a thread was still in the version after ``timeout_s``: then the pages stay, and the program is as before
    once that thread leaves them. Raises ``Rejected`` as ``install`` does.
    """
    placement = installed.placement
    suspend(tracee, installed, timeout_s)
    try:
        _stop_outside(tracee, timeout_s,
                      lambda: not _inside(tracee, placement.code, placement.code + placement.code_size))
    except Rejected:
        return False
    unmap(tracee, placement)
    return True


def suspend(tracee: Tracee, installed: Installed, timeout_s: float = 1.0) -> None:
    """Restore the original bytes but keep the version's pages; the target is left stopped. Raises ``Rejected`` as
    ``install`` does."""
    patch = installed.patch
    _stop_outside(tracee, timeout_s, lambda: not _inside(tracee, patch.address + 1, patch.end))
    found = tracee.memory.read(patch.address, len(patch.original))
    if found not in (patch.original, patch.replacement):
        raise Rejected(Reason.NO_ROOM, f"{patch.address:#x} holds {found.hex()}: it has changed since the patch")
    if found == patch.replacement:
        faults.point("install.remove")
        tracee.memory.write(patch.address, patch.original)


def find_installed(pid: int) -> tuple[Installed, ...]:
    """The patches in force in ``pid``, whichever memopt installed them. Raises ``Rejected`` if memopt may not read its
    memory."""
    maps = mappings(pid)
    memory = Memory(pid)
    try:
        return tuple(found for mapping in maps if mapping.shared and mapping.path.startswith(f"/memfd:{MEMFD_NAME} ")
                     for found in _recorded(memory, maps, mapping))
    finally:
        memory.close()


def _check_place(pid: int, patch: Patch) -> None:
    if not 0 < len(patch.original) == len(patch.replacement) <= 16:
        raise Rejected(Reason.NO_ROOM, f"a patch of {len(patch.replacement)} bytes for {len(patch.original)} bytes")
    if patch.address // PAGE != (patch.end - 1) // PAGE:
        raise Rejected(Reason.NO_ROOM, f"the patch at {patch.address:#x} would cross a page border")
    mapping = mapping_at(mappings(pid), patch.address)
    if mapping is None or not mapping.executable or mapping.writable or mapping.shared:
        raise Rejected(Reason.PROTECTED_MAPPING, f"the code at {patch.address:#x} is not plain program text")


def _stop_outside(tracee: Tracee, timeout_s: float, outside: Callable[[], bool]) -> None:
    """Stop the target at a moment when ``outside()`` holds; between the attempts it runs for a short time.

    Raises ``Rejected(BLOCKED)`` after ``timeout_s``.
    """
    deadline = time.monotonic() + timeout_s
    pause = 0.0001
    while True:
        if not tracee.stopped:
            tracee.stop(max(0.1, deadline - time.monotonic()))
        if outside():
            return
        if time.monotonic() >= deadline:
            raise Rejected(Reason.BLOCKED, "at every attempt a thread stood inside the code to be replaced")
        tracee.run_for(pause)
        pause = min(2 * pause, 0.02)


def _movable(tracee: Tracee, patch: Patch, moved: abc.Mapping[int, int]) -> bool:
    """Whether the patch may be committed in this stop.

    Without ``moved`` code, no thread may stand inside the displaced bytes or return into them. With it, a thread may
    stand in moved code, but only at the start of an instruction, and none may return into it.
    """
    if not moved:
        return not _inside(tracee, patch.address + 1, patch.end)
    low, high = min(moved), max(moved) + 1  # not further: other code may begin right behind the last instruction
    for tid in tracee.threads:
        registers = tracee.registers(tid)
        inside = low <= registers.rip < high and registers.rip not in moved
        if inside or registers.restarting or stack_values(tracee.memory, registers.rsp, low, high):
            return False
    return True


def _inside(tracee: Tracee, low: int, high: int) -> bool:
    """Whether a thread executes in ``[low, high)``, or may return there from a call or a signal handler."""
    for tid in tracee.threads:
        registers = tracee.registers(tid)
        # An interrupted system call is restarted: the thread goes on at the syscall instruction before rip.
        places = (registers.rip, registers.rip - _SYSCALL_BYTES) if registers.restarting else (registers.rip,)
        if any(low <= place < high for place in places) or stack_values(tracee.memory, registers.rsp, low, high):
            return True
    return False


def _record(cache: CodeCache, patch: Patch) -> None:
    place = cache.placement
    cache.write_record(RECORD_OFFSET, _HEADER.pack(
        _MAGIC, _VERSION, 1, place.code, place.code_size, place.frame, place.frame_size, place.scratch,
        place.scratch_size) + _ENTRY.pack(patch.address, len(patch.original), patch.original, patch.replacement))


def _recorded(memory: Memory, maps: tuple[Mapping, ...], statistics: Mapping) -> list[Installed]:
    """The patches in the record of a statistics page that are in force: their replacement bytes are in place."""
    page = memory.read_some(statistics.start, STATISTICS_SIZE)
    if len(page) < STATISTICS_SIZE:  # memopt was killed before it had resized the file
        return []
    magic, version, count, code, code_size, frame, frame_size, scratch, scratch_size = _HEADER.unpack_from(
        page, RECORD_OFFSET)
    pages = mapping_at(maps, code)
    if (magic, version) != (_MAGIC, _VERSION) or pages is None or pages.inode != statistics.inode:
        return []
    placement = Placement(code, code_size, frame, frame_size, statistics.start, scratch, scratch_size)
    result = []
    for index in range(min(count, _MOST_PATCHES)):
        address, length, original, replacement = _ENTRY.unpack_from(page, RECORD_OFFSET + _HEADER.size
                                                                    + index * _ENTRY.size)
        if length <= 16 and memory.read_some(address, length) == replacement[:length]:
            result.append(Installed(Patch(address, original[:length], replacement[:length]), placement))
    return result
