"""Isolation of a shadow: a forked copy keeps nothing that the program, or another process, could notice.

Example: the program holds ``flock(fd, LOCK_EX)`` while it is copied, and closes ``fd`` afterwards. If the copy had the
descriptor too, the lock would stay. So the copy's descriptors are gone before the program goes on.

In: a new child, stopped at its first instruction, and what its parent has mapped and open. Out: the child without
descriptors and with a working directory that keeps no file system busy. Its shared mappings are read-only, gone, or
replaced by private memory:

- memopt's own statistics page, small segments of System V and small files that the program has open: private memory
  with the same bytes. A mapping holds the open file as a descriptor does, with its locks; and ``shmctl`` counts
  mappings.
- larger ones, and those of devices: unmapped. A trial that comes to them is refused. Private mappings of large files
  stay unless the file is locked: nests read them, and nothing but a lock shows that they are there.
- all other shared memory that can be written: read-only.

So the child's memory map does not tell any more which memory the program shares: ``Shadow.maps`` does.

Invariant: the parent's descriptors, and what they stand for, are not touched. The child is made with CLONE_FILES
(``CLONE_FLAGS``): it has no table of its own that holds anything, until it leaves the common one by
CLOSE_RANGE_UNSHARE. So there is no moment at which a descriptor is open twice, even if memopt dies.
"""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from memopt.ir.frozen import dataclass
from memopt.ir.reasons import Reason, Rejected, VerifyError
from runtime.target import ptrace, remote_calls
from runtime.target.memory import Mapping, mappings
from runtime.target.ptrace import Registers, StopKind
from runtime.target.remote_calls import Call, UnusedBytes
from runtime.target.tracee import Tracee

_SYS_CHDIR, _SYS_CLOSE_RANGE = 80, 436
_CLOSE_RANGE_UNSHARE = 2
_CLONE_FILES = 0x400
_ALL = (1 << 32) - 1
_READ, _READ_WRITE = 1, 3
_PRIVATE_ANONYMOUS, _FIXED = 0x02 | 0x20, 0x10
_COPIED_BYTES = 4 << 20  # of shared memory in one copy: the program is stopped meanwhile
_FEW = 2  # calls that one stub makes
_TABLE_S = 30.0
_ROW = struct.Struct("<7Q")  # number and six arguments of a call; the result takes the place of the number

# r12 is the row, r13 the end of the table, in the child only:
#   next: mov rax, [r12]; mov rdi, [r12+8]; ...; syscall; mov [r12], rax; add r12, 56; cmp r12, r13; jb next; int3
_LOOP = bytes.fromhex("498b0424498b7c2408498b742410498b5424184d8b5424204d8b4424284d8b4c2430"
                      "0f05498904244983c4384d39ec72cfcc")


@dataclass(frozen=True, slots=True)
class Held:
    """What the parent has open: the paths of its descriptors, as in its memory map, and the locked files' inodes."""

    paths: frozenset[str]
    locked: frozenset[int]


@functools.cache
def closes_ranges() -> bool:
    """Whether the kernel has close_range(2): since Linux 5.9. The call made here closes nothing."""
    return bool(ctypes.CDLL(None, use_errno=True).syscall(_SYS_CLOSE_RANGE, _ALL, _ALL, 0) == 0)


def clone_flags() -> int:
    """The flag with which a child is cloned that ``isolate`` takes out of its parent's table of descriptors. Without
    close_range the child gets a table of its own, and closes one by one."""
    return _CLONE_FILES if closes_ranges() else 0


def held_by(pid: int, maps: Sequence[Mapping]) -> Held:
    """The open files of ``pid``, which is stopped. Files that code is mapped from are left out: loaders map them by
    descriptors of their own."""
    mapped = {m.path for m in maps if m.inode} - {m.path for m in maps if m.executable}
    if not mapped:  # mostly: and a program may have 100,000 descriptors, and is stopped
        return Held(frozenset(), frozenset())
    paths = set()
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                paths.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    paths &= mapped
    return Held(frozenset(paths), _locked() if paths else frozenset())


def _locked() -> frozenset[int]:
    """The inodes of all files with a lock or lease (proc_locks(5)); devices are left out, as the numbers differ between
    files of one file system."""
    found = set()
    with suppress(OSError), open("/proc/locks", encoding="ascii", errors="replace") as file:
        for line in file:
            place = next((word for word in line.split() if word.count(":") == 2), "")
            with suppress(ValueError):
                found.add(int(place.rpartition(":")[2]))
    return frozenset(found)


def isolate(child: Tracee, place: UnusedBytes, registers: Registers, maps: Sequence[Mapping], held: Held) -> None:
    """Give a new child the program's registers at the fork, remove the stub, and take from it all that is shared.

    ``place``: where the stub of the fork stands; ``maps``: the parent's mappings, but for private ones without a file;
    ``held``: its open files. Raises ``Rejected``.
    """
    child.set_registers(registers)
    child.memory.write(place.start, bytes(place.end - place.start))
    _leave_files(child, place)
    with suppress(OSError), open(f"/proc/{child.pid}/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")  # if memory runs out nevertheless, the kernel shall kill the shadow
    if any(_is_shared(mapping, held) for mapping in maps):
        # Read again: the child lacks mappings that its parent does not pass on (MADV_DONTFORK).
        _cut_off(child, place, [m for m in mappings(child.pid) if _is_shared(m, held)], held)


def _leave_files(child: Tracee, place: UnusedBytes) -> None:
    leave = Call(_SYS_CHDIR, (b"/\0",))  # which may be forbidden
    if closes_ranges():
        closing = Call(_SYS_CLOSE_RANGE, (0, _ALL, _CLOSE_RANGE_UNSHARE))
        results = remote_calls.run(child, [closing, leave], place=place)[:1]
    else:
        remote_calls.run(child, [leave], place=place)
        results = _make(child, place, [Call(remote_calls.SYS_CLOSE, (int(name),))
                                       for name in os.listdir(f"/proc/{child.pid}/fd")])
    for result in results:
        remote_calls.check(result, "closing the descriptors of a trial copy")


def _is_shared(mapping: Mapping, held: Held) -> bool:
    return (mapping.shared and mapping.writable) or _counted(mapping, held)


def _counted(mapping: Mapping, held: Held) -> bool:
    """Whether others can notice that a copy has the mapping."""
    return mapping.path.startswith("/SYSV") or (mapping.inode != 0 and mapping.path in held.paths)


def _cut_off(child: Tracee, place: UnusedBytes, shared: Sequence[Mapping], held: Held) -> None:
    """Isolate the child from these mappings."""
    calls: list[Call] = []
    contents: list[tuple[int, bytes]] = []
    copied = 0
    for mapping in shared:
        size = mapping.end - mapping.start
        own = mapping.path.startswith("/memfd:memopt")
        device = mapping.path.startswith("/dev/") and not mapping.path.startswith(("/dev/shm/", "/dev/zero"))
        counted = _counted(mapping, held)
        if (own or counted) and not device and copied + size <= _COPIED_BYTES:
            # Of a file that was cut short, or by a memopt that was killed, nothing can be read.
            content = child.memory.read_some(mapping.start, size)
            access = sum(bit for bit, letter in ((1, "r"), (2, "w"), (4, "x")) if letter in mapping.perms)
            calls.append(Call(remote_calls.SYS_MMAP, (mapping.start, size, access, _PRIVATE_ANONYMOUS | _FIXED, -1, 0)))
            contents.append((mapping.start, content))
            copied += size
        elif device or (counted and (mapping.shared or mapping.inode in held.locked)):
            calls.append(Call(remote_calls.SYS_MUNMAP, (mapping.start, size)))
        elif mapping.shared and mapping.writable:
            calls.append(Call(remote_calls.SYS_MPROTECT, (mapping.start, size, _READ)))
    for result in _make(child, place, tuple(_joined(calls))):
        remote_calls.check(result, "isolating a trial copy from shared memory")
    for address, content in contents:
        child.memory.write(address, content)


def _joined(calls: Sequence[Call]) -> Iterator[Call]:
    """The calls, with neighbouring ranges that are unmapped or protected alike in one."""
    last: Call | None = None
    for call in calls:
        if last is not None:
            (start, size, *rest), (address, length, *others) = last.arguments, call.arguments
            if (call.number == last.number != remote_calls.SYS_MMAP and rest == others
                    and isinstance(start, int) and isinstance(size, int) and isinstance(length, int)
                    and start + size == address):
                last = Call(call.number, (start, size + length, *rest))
                continue
            yield last
        last = call
    if last is not None:
        yield last


def _make(child: Tracee, place: UnusedBytes, calls: Sequence[Call]) -> tuple[int, ...]:
    """Make the calls in the child; many by a loop over a table in memory of the child's, which is gone afterwards."""
    if len(calls) <= _FEW:
        return remote_calls.run(child, calls, place=place) if calls else ()
    size = _ROW.size * len(calls)
    before, kept = child.registers(), child.memory.read(place.start, len(_LOOP))
    table, = remote_calls.run(child, [Call(remote_calls.SYS_MMAP, (0, size, _READ_WRITE, _PRIVATE_ANONYMOUS, -1, 0))],
                              place=place)
    remote_calls.check(table, "memory for a trial copy")
    rows = b"".join(_ROW.pack(call.number, *_six(call)) for call in calls)
    child.memory.write(table, rows)
    child.memory.write(place.start, _LOOP)
    child.set_registers(replace(before, rip=place.start, r12=table, r13=table + size))
    child.go(ptrace.CONT, child.pid)
    stop = child.wait(child.pid, _TABLE_S)
    while stop.kind is not StopKind.SIGNAL:
        child.go(ptrace.CONT, child.pid)
        stop = child.wait(child.pid, _TABLE_S)
    if stop.signal != signal.SIGTRAP:
        raise Rejected(Reason.SHADOW_INCONCLUSIVE, f"{signal.Signals(stop.signal).name} while a copy was isolated")
    done = child.memory.read(table, size)
    child.memory.write(place.start, kept)
    child.set_registers(before)
    remote_calls.run(child, [Call(remote_calls.SYS_MUNMAP, (table, size))], place=place)
    return tuple(row[0] - (1 << 64) if row[0] >> 63 else row[0] for row in _ROW.iter_unpack(done))


def _six(call: Call) -> Iterator[int]:
    """The arguments of a call, all numbers, as unsigned words."""
    for argument in (*call.arguments, *(0,) * (6 - len(call.arguments))):
        if not isinstance(argument, int):
            raise VerifyError(f"a table of calls holds numbers only, not {argument!r}")
        yield argument % (1 << 64)
