"""Putting a version into the live process, and taking it out again.

The commit is one write of a few bytes within one page while every thread is stopped and none stands, or will return,
inside them. A record of it is written to the statistics page first, so that any later memopt can find and undo it.
Invariant: killed at any step, memopt leaves either the original bytes or a complete, recorded patch.
"""

from __future__ import annotations

import struct
import time
from collections import abc
from collections.abc import Callable, Iterator
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
    """``replacement`` for the ``original`` bytes at ``address``; both at most 16 bytes, equally long."""

    address: int
    original: bytes
    replacement: bytes

    @property
    def end(self) -> int:
        return self.address + len(self.original)

    def __str__(self) -> str:
        return f"{self.address:#x}: {self.original.hex()} -> {self.replacement.hex()}"


@dataclass(frozen=True, slots=True)
class Installed:
    """A patch found in a process, and the pages of the version behind it."""

    patch: Patch
    placement: Placement


@dataclass(frozen=True, slots=True)
class Unpatched:
    """The code of a process as it was before the ``patches`` in force."""

    memory: Memory
    patches: tuple[Patch, ...]

    def read(self, address: int, size: int) -> bytes:
        """As ``Memory.read``."""
        return self._restored(address, self.memory.read(address, size))

    def read_some(self, address: int, size: int) -> bytes:
        """As ``Memory.read_some``."""
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
    """The code of ``pid`` as it was; raises ``Rejected`` when it may not be looked at."""
    memory = Memory(pid)
    try:
        yield Unpatched(memory, tuple(installed.patch for installed in find_installed(pid)))
    finally:
        memory.close()


def jump(source: int, target: int, original: bytes) -> Patch:
    """The 5-byte jump from ``source`` to ``target`` over ``original`` (its first 5 bytes count)."""
    if len(original) < 5:
        raise Rejected(Reason.NO_ROOM, f"{len(original)} bytes at {source:#x} are too few for a jump")
    return Patch(source, original[:5], jump_bytes(source, target))


def jump_bytes(source: int, target: int) -> bytes:
    """``jmp rel32`` at ``source``; raises ``Rejected(NO_ROOM)`` when ``target`` is out of its reach."""
    displacement = target - (source + 5)
    if not -(1 << 31) <= displacement < 1 << 31:
        raise Rejected(Reason.NO_ROOM, f"{target:#x} is out of reach of a jump at {source:#x}")
    return b"\xe9" + displacement.to_bytes(4, "little", signed=True)


def install(tracee: Tracee, patch: Patch, cache: CodeCache, timeout_s: float = 1.0,
            moved: abc.Mapping[int, int] = MappingProxyType({})) -> None:
    """Commit ``patch``, whose replacement leads into ``cache``; the target is left stopped.

    ``moved``: old to new address of code that must not be executed where it was any more; a thread that stands in
    it goes on in the copy (first: the copy does the same with or without the patch). ``timeout_s``: how long to look
    for a moment when nothing stands inside the displaced bytes, resuming between. Raises ``Rejected``: NO_ROOM (page
    border, other bytes there, threads that sleep and cannot be moved), BLOCKED (no such moment), PROTECTED_MAPPING.
    """
    _check_place(tracee.pid, patch)
    if moved and len(threads(tracee.pid)) > 1:
        raise Rejected(Reason.NO_ROOM, "the loop would have to move, and threads sleep that may stand in it")
    _stop_outside(tracee, timeout_s, lambda: _movable(tracee, patch, moved))
    found = tracee.memory.read(patch.address, len(patch.original))
    if found != patch.original:
        raise Rejected(Reason.NO_ROOM, f"{patch.address:#x} holds {found.hex()}, not {patch.original.hex()}")
    _record(cache, patch)
    for tid in tracee.threads:
        registers = tracee.registers(tid)
        if registers.rip in moved and registers.rip != patch.address:
            tracee.set_registers(replace(registers, rip=moved[registers.rip]), tid)
    faults.point("install.commit")
    tracee.memory.write(patch.address, patch.replacement)


def remove(tracee: Tracee, installed: Installed, timeout_s: float = 1.0) -> bool:
    """Put the original bytes back, then unmap the version's pages; the target is left stopped.

    False when a thread was still in the version after ``timeout_s``: the program is as it was as soon as it leaves,
    and only the pages stay. Raises ``Rejected`` as ``install``.
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
    """Put the original bytes back; the version's pages stay, and the target is left stopped. Raises ``Rejected`` as
    ``install``."""
    patch = installed.patch
    _stop_outside(tracee, timeout_s, lambda: not _inside(tracee, patch.address + 1, patch.end))
    found = tracee.memory.read(patch.address, len(patch.original))
    if found not in (patch.original, patch.replacement):
        raise Rejected(Reason.NO_ROOM, f"{patch.address:#x} holds {found.hex()}: somebody else has changed it")
    if found == patch.replacement:
        faults.point("install.remove")
        tracee.memory.write(patch.address, patch.original)


def find_installed(pid: int) -> tuple[Installed, ...]:
    """The patches in force in ``pid``, by whichever memopt; raises ``Rejected`` when it may not be looked at."""
    maps = mappings(pid)
    memory = Memory(pid)
    try:
        return tuple(found for mapping in maps if mapping.shared and mapping.path.startswith(f"/memfd:{MEMFD_NAME} ")
                     for found in _recorded(memory, maps, mapping))
    finally:
        memory.close()


def _check_place(pid: int, patch: Patch) -> None:
    if not 0 < len(patch.original) == len(patch.replacement) <= 16:
        raise Rejected(Reason.NO_ROOM, f"{len(patch.replacement)} bytes for {len(patch.original)}")
    if patch.address // PAGE != (patch.end - 1) // PAGE:
        raise Rejected(Reason.NO_ROOM, f"the patch at {patch.address:#x} would cross a page border")
    mapping = mapping_at(mappings(pid), patch.address)
    if mapping is None or not mapping.executable or mapping.writable or mapping.shared:
        raise Rejected(Reason.PROTECTED_MAPPING, f"the code at {patch.address:#x} is not plain program text")


def _stop_outside(tracee: Tracee, timeout_s: float, outside: Callable[[], bool]) -> None:
    """Stop the target at a moment when ``outside()`` holds; between the tries it runs a little."""
    deadline = time.monotonic() + timeout_s
    pause = 0.0001
    while True:
        if not tracee.stopped:
            tracee.stop(max(0.1, deadline - time.monotonic()))
        if outside():
            return
        if time.monotonic() >= deadline:
            raise Rejected(Reason.BLOCKED, "a thread stands inside the code to be replaced all the time")
        tracee.run_for(pause)
        pause = min(2 * pause, 0.02)


def _movable(tracee: Tracee, patch: Patch, moved: abc.Mapping[int, int]) -> bool:
    """Stands no thread in the bytes to be replaced, or else all that stand in moved code at an instruction's start,
    and will none return into any of it?"""
    if not moved:
        return not _inside(tracee, patch.address + 1, patch.end)
    low, high = min(moved), max(moved) + 1  # right behind the last one its caller's code may begin
    for tid in tracee.threads:
        registers = tracee.registers(tid)
        inside = low <= registers.rip < high and registers.rip not in moved
        if inside or registers.restarting or stack_values(tracee.memory, registers.rsp, low, high):
            return False
    return True


def _inside(tracee: Tracee, low: int, high: int) -> bool:
    """Does a thread execute in ``[low, high)``, or may it return there from a call or a signal handler?"""
    for tid in tracee.threads:
        registers = tracee.registers(tid)
        # An interrupted system call starts again at the instruction before.
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
    """What the record in a statistics page says, as far as it is true: the replacement is there, and leads to it."""
    page = memory.read_some(statistics.start, STATISTICS_SIZE)
    if len(page) < STATISTICS_SIZE:  # a memopt killed before it gave the file its size
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
