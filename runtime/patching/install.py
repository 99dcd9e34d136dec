"""Commits a patch in the live process, and removes it.

Example: at the header of the loop, ``48 8b 04 c8 48 ...`` becomes ``e9 xx xx xx xx``, a jump to the version's guard.

In: a stopped ``Tracee``, a ``Patch``, the ``CodeCache`` of the version. Out: the patched process, stopped. Raises
``Rejected``: NO_ROOM, BLOCKED, PROTECTED_MAPPING.

The commit is one write of a few bytes within one page, in a stop in which everything that it rests on has been looked
at. Nobody may stand inside the displaced bytes or come back to them. Where the patch covers one whole instruction,
nobody can: there is no place to stand. Else the threads are looked at, and memory is searched for suspended contexts
(runtime/target/contexts.py). Before the commit, a record of the patch is written to the statistics page, so that any
later memopt can find the patch and undo it.

Taking out restores the original bytes. That needs no look at anybody: the jump is one instruction, so nobody stands
inside it, and whoever has passed it is in the version. The version's pages stay until the program ends, because a
context may be suspended in them where nobody can find it: it goes on in the version, and leaves it by the usual way.
The limit 0 and the lock that is never free again keep everybody else out. The scratch memory is used only while the
lock ``busy`` is held, and is unmapped if it is not. So a version leaves behind some 300 KiB; there are at most
``code_cache.MOST_VERSIONS`` in one program. Later memopts find them by their records.

Invariant: if memopt is killed at any step, the process has either its original bytes or a complete, recorded patch.
"""

from __future__ import annotations

import struct
import time
from collections import abc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType

from memopt.ir.code import FRAME_BUSY, FRAME_LIMIT, FRAME_RETIRED, Placement
from memopt.ir.frozen import dataclass
from memopt.ir.reasons import Reason, Rejected
from memopt.x86.decoder import decode
from runtime import faults
from runtime.patching.code_cache import MEMFD_NAME, STATISTICS_SIZE, CodeCache, unmap_scratch
from runtime.target import contexts, remote_calls
from runtime.target.memory import PAGE, Mapping, Memory, mapping_at, mappings
from runtime.target.tracee import Tracee, threads

RECORD_OFFSET = 256  # in the statistics page
_MAGIC = b"MEMOPT\0\0"
_VERSION = 1
_HEADER = struct.Struct("<8sII6Q")  # magic, version, patches; code, frame, scratch: address and size
_ENTRY = struct.Struct("<QQ16s16s")  # address, length, original, replacement
_MOST_PATCHES = (STATISTICS_SIZE - RECORD_OFFSET - _HEADER.size) // _ENTRY.size
_LONGEST_INSTRUCTION = 15


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
    """A version that was put in service in a process: its patch, and its pages.

    ``in_force``: the jump is in place. It is not where the version was taken out, stands behind another, or is set
    aside. ``placement``: without scratch memory once that is given back.
    """

    patch: Patch
    placement: Placement
    in_force: bool = True


@dataclass(frozen=True, slots=True)
class Remains:
    """What stays of a version that was taken out. ``running``: somebody is in the middle of it, or was and never came
    back; its scratch memory stays then. ``bytes``: of all its pages that stay."""

    running: bool
    bytes: int


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
            moved: abc.Mapping[int, int] = MappingProxyType({}), code: Sequence[tuple[int, bytes]] = (),
            check: Callable[[], None] = lambda: None, interrupted: Callable[[], bool] | None = None) -> None:
    """Commit ``patch``, whose replacement leads into ``cache``; the target is left stopped.

    ``timeout_s``: how long to look for a moment when nobody stands inside the displaced bytes; between the attempts
    the target runs.
    ``moved``: code that must not be executed at its old place any more: old to new address of each instruction. A
    thread that stands in it is set to the copy. That happens before the commit, because the copy does the same with and
    without the patch.
    ``code``: the code that the version stands for, as (address, bytes). All of it is compared in the same stop in which
    the patch is written, so that code which was replaced since it was lifted gets no patch.
    ``check``: called in the stop in which the patch is committed; raises ``Rejected`` if it must not be.
    ``interrupted``: asked in that stop whether signal handlers may leave the program's code suspended; by default they
    may if there are any.
    Raises ``Rejected``: CODE_CHANGED (the bytes there are others), NO_ROOM (the patch would cross a page border, there
    are sleeping threads, which cannot be moved, or too much memory to search), BLOCKED (no such moment),
    PROTECTED_MAPPING.
    """
    contexts.get_ready(tracee.pid)

    def free() -> bool:
        check()
        _check_place(tracee.pid, patch)
        found = tracee.memory.read(patch.address, len(patch.original))
        if found != patch.original:
            raise Rejected(Reason.CODE_CHANGED, f"{patch.address:#x} holds {found.hex()}, not {patch.original.hex()}")
        for address, lifted in code:
            if tracee.memory.read_some(address, len(lifted)) != lifted:
                raise Rejected(Reason.CODE_CHANGED, f"in the {len(lifted)} bytes at {address:#x}")
        if moved and len(threads(tracee.pid)) > 1:
            raise Rejected(Reason.NO_ROOM, "the patch needs the loop to move, and a sleeping thread may stand in it")
        return _movable(tracee, moved, interrupted) if moved else _outside(tracee, patch, interrupted)

    _stop_at(tracee, timeout_s, free)
    _record(cache, patch)
    for tid in tracee.threads:
        registers = tracee.registers(tid)
        if registers.rip in moved and registers.rip != patch.address:
            tracee.set_registers(replace(registers, rip=moved[registers.rip]), tid)
    faults.point("install.commit")
    tracee.memory.write(patch.address, patch.replacement)


def remove(tracee: Tracee, installed: Installed, timeout_s: float = 1.0) -> Remains:
    """Restore the original bytes, keep everybody out of the version, and give back its scratch memory; the target is
    left stopped. Raises ``Rejected`` as ``suspend`` does.

    The scratch memory stays, too, if somebody uses it, or if the program may not be made to call (seccomp).
    """
    suspend(tracee, installed, timeout_s)
    place = installed.placement
    # In this order: whoever takes the lock after it was read sees the limit.
    tracee.memory.write(place.frame + FRAME_LIMIT, bytes(8))
    running = tracee.memory.word(place.frame + FRAME_BUSY) not in (0, FRAME_RETIRED)
    if not running:
        tracee.memory.write(place.frame + FRAME_BUSY, FRAME_RETIRED.to_bytes(8, "little"))
        place = _without_scratch(tracee, installed)
    return Remains(running, place.code_size + STATISTICS_SIZE + place.frame_size + place.scratch_size)


def _without_scratch(tracee: Tracee, installed: Installed) -> Placement:
    """Unmap the scratch memory of a version that nobody is in; the placement that is left."""
    place = installed.placement
    if not place.scratch_size:
        return place
    try:
        remote_calls.check_callable(tracee)
    except Rejected:
        return place
    left = replace(place, scratch=0, scratch_size=0)
    # First the record: it must never name memory that may belong to the program by then.
    tracee.memory.write(place.statistics + RECORD_OFFSET, _record_of(left, installed.patch))
    unmap_scratch(tracee, place)
    return left


def suspend(tracee: Tracee, installed: Installed, timeout_s: float = 1.0) -> None:
    """Restore the original bytes but keep the version as it is; the target is left stopped.

    Raises ``Rejected``: NO_ROOM if the patch is in force and the bytes were changed since, BLOCKED.
    """
    patch = installed.patch
    if not tracee.stopped:
        tracee.stop(timeout_s)
    if not installed.in_force:
        return
    found = tracee.memory.read(patch.address, len(patch.original))
    if found not in (patch.original, patch.replacement):
        raise Rejected(Reason.NO_ROOM, f"{patch.address:#x} holds {found.hex()}: it has changed since the patch")
    if found == patch.replacement:
        faults.point("install.remove")
        tracee.memory.write(patch.address, patch.original)


def find_installed(pid: int) -> tuple[Installed, ...]:
    """The patches in force in ``pid``, whichever memopt installed them. Raises ``Rejected`` if memopt may not read its
    memory."""
    return tuple(version for version in find_versions(pid) if version.in_force)


def find_versions(pid: int) -> tuple[Installed, ...]:
    """All versions that were ever put in service in ``pid``, in force or not. Raises as ``find_installed`` does."""
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


def _stop_at(tracee: Tracee, timeout_s: float, free: Callable[[], bool]) -> None:
    """Stop the target at a moment when ``free()`` holds; between the attempts it runs for a short time.

    Raises ``Rejected(BLOCKED)`` after ``timeout_s``, and what else ``free`` raises.
    """
    deadline = time.monotonic() + timeout_s
    pause = 0.0001
    while True:
        if not tracee.stopped:
            tracee.stop(max(0.1, deadline - time.monotonic()))
        why = Rejected(Reason.BLOCKED, "at every attempt somebody stood inside the code to be replaced")
        try:
            if free():
                return
        except Rejected as rejected:
            if rejected.reason is not Reason.BLOCKED:
                raise
            why = rejected
        if time.monotonic() >= deadline:
            raise why
        tracee.run_for(pause)
        pause = min(2 * pause, 0.02)


def _outside(tracee: Tracee, patch: Patch, interrupted: Callable[[], bool] | None = None) -> bool:
    """Whether nobody goes on strictly inside the bytes that ``patch`` covers, now or later."""
    code = tracee.memory.read_some(patch.address, len(patch.original) + _LONGEST_INSTRUCTION)
    inside = inner_starts(code, patch)
    if not inside:
        return True
    if any(place in inside for place in contexts.standing(tracee)):
        return False
    return not contexts.suspended(tracee, min(inside), max(inside) + 1, inside,
                                  everywhere=interrupted and interrupted())


def inner_starts(code: bytes, patch: Patch) -> frozenset[int]:
    """The addresses strictly inside ``patch`` where an instruction of ``code``, the bytes at its address, begins."""
    known = decode(code, patch.address)
    end = known[-1].end if known else patch.address + 1
    starts = (*(instruction.address for instruction in known), *range(end, patch.end))  # bytes that do not decode: any
    return frozenset(start for start in starts if patch.address < start < patch.end)


def _movable(tracee: Tracee, moved: abc.Mapping[int, int], interrupted: Callable[[], bool] | None = None) -> bool:
    """Whether a patch may be committed in this stop for which a whole loop moves.

    A thread may stand in the loop, but only at the start of an instruction, and none may return into it.
    """
    low, high = min(moved), max(moved) + 1  # not further: other code may begin right behind the last instruction
    for tid in tracee.threads:
        registers = tracee.registers(tid)
        if (low <= registers.rip < high and registers.rip not in moved) or registers.restarting:
            return False
    return not contexts.suspended(tracee, low, high, everywhere=interrupted and interrupted())


def _record(cache: CodeCache, patch: Patch) -> None:
    cache.write_record(RECORD_OFFSET, _record_of(cache.placement, patch))


def _record_of(place: Placement, patch: Patch) -> bytes:
    return _HEADER.pack(_MAGIC, _VERSION, 1, place.code, place.code_size, place.frame, place.frame_size, place.scratch,
                        place.scratch_size) + _ENTRY.pack(patch.address, len(patch.original), patch.original,
                                                          patch.replacement)


def _recorded(memory: Memory, maps: tuple[Mapping, ...], statistics: Mapping) -> list[Installed]:
    """The versions in the record of a statistics page; they are in force if their replacement bytes are in place."""
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
        if 0 < length <= 16:
            in_force = memory.read_some(address, length) == replacement[:length]
            result.append(Installed(Patch(address, original[:length], replacement[:length]), placement, in_force))
    return result
