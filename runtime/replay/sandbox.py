"""The sandbox: a child process with the pages, registers and vector state of a snapshot, and nothing else.

Example: a snapshot of 12 pages becomes a process with these 12 pages, at their addresses, and one more of memopt's.

In: a ``Snapshot`` of any origin. Out: a confined ``Shadow`` that stands at the header, whose copies are confined, too.
Raises ``SnapshotError`` where the state cannot be set up, ``Rejected`` where the system permits no child.

The child begins as a program of a few bytes (``_program``), made for an address that the snapshot leaves free. It asks
to be killed with memopt, then waits to be traced. memopt removes all else from its memory, and maps the pages.

Invariant: the child runs code of the snapshot under PTRACE_SYSEMU only, so that no system call of that code is ever
made. From the moment that it is traced it ends with memopt (EXITKILL).
"""

from __future__ import annotations

import os
import resource
import signal
import struct
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

from memopt.ir.code import Placement
from memopt.ir.reasons import Rejected
from memopt.private_files import temporary_files_in
from memopt.snapshots.form import LOWEST, PAGE, REGISTERS, TOP, Snapshot, SnapshotError
from runtime.patching.code_cache import STATISTICS_SIZE, choose_near, choose_scratch, free_gaps, map_alike
from runtime.replay.vector_image import image_of
from runtime.target import ptrace, remote_calls
from runtime.target.memory import Mapping, mapping_at, mappings
from runtime.target.ptrace import Registers, TargetEnded
from runtime.target.remote_calls import Call
from runtime.target.tracee import Tracee, attach
from runtime.trial.shadow import Shadow

STOP_SECONDS = 10.0  # for the child, which only waits, to stop: the machine may be busy
SPARE_BYTES = 1 << 30  # of address space, besides the pages: for a version, and for what the kernel maps
PROCESSOR_SECONDS = 600  # after which the kernel ends the child, whatever memopt does
MOST_SCRATCH = 256 << 20  # bytes of a version, whose sizes a snapshot tells
_STEP = 1 << 16
_STANDARD_ERROR = 2
_BATCH = 2
_PRIVATE_ANONYMOUS, _FIXED_NOREPLACE = 0x22, 0x100000
_ACCESS = {"r": 1, "w": 2, "x": 4}
_CODE, _STACK_SEGMENT = 0x33, 0x2B  # of programs of 64 bits
_FLAGS, _ALWAYS = 0xCD5, 0x202  # flags that arithmetic and ``std`` set; those that are set in every program
# prctl(PR_SET_PDEATHSIG, SIGKILL); then jmp to itself
_WAITING = bytes.fromhex("b89d000000 bf01000000 be09000000 0f05 ebfe")


@contextmanager
def sandbox(snapshot: Snapshot) -> Iterator[Shadow]:
    """A confined shadow at the header of the nest, killed at the end of the block."""
    base = _free_address(snapshot)
    pid = _spawned(base)
    with ExitStack() as stack:
        stack.callback(_end, pid)
        try:
            _limit(pid, snapshot.size)
            tracee = attach(pid)
            stack.callback(tracee.memory.close)
            tracee.stop(STOP_SECONDS)
            tracee.set_options(ptrace.OPTION_EXITKILL)
            shadow = Shadow(tracee, 0, _origin(snapshot))
            shadow.confined = True
            _fill(tracee, snapshot, base)
            yield shadow
        except TargetEnded as ended:
            raise SnapshotError("the child that was to run it was killed") from ended


def _end(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with suppress(TargetEnded, ptrace.WaitTimeout):
        while True:
            ptrace.wait(pid, STOP_SECONDS)


def _program(base: int) -> bytes:
    """An ELF file with one segment, which is mapped read-execute at ``base`` (System V ABI, chapter 4 and 5)."""
    start, size = 64 + 2 * 56, 64 + 2 * 56 + len(_WAITING)
    header = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack(
        "<HHIQQQIHHHHHH", 2, 62, 1, base + start, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, base, base, size, size, PAGE)
    stack = struct.pack("<IIQQQQQQ", 0x6474E551, 6, 0, 0, 0, 0, 0, 16)
    return header + load + stack + _WAITING


def _spawned(base: int) -> int:
    """The child, which waits; it has neither files nor an environment."""
    with temporary_files_in("replay") as folder:
        descriptor, path = tempfile.mkstemp(prefix="child-", dir=folder)
        try:
            with open(descriptor, "wb") as file:
                file.write(_program(base))
            os.chmod(path, 0o700)
            return os.posix_spawn(path, ["memopt-replay"], {}, file_actions=list(_no_files()))
        except OSError as error:
            raise SnapshotError(f"no child can be started to run it: {error.strerror}") from error
        finally:
            with suppress(OSError):
                os.unlink(path)


def _no_files() -> Iterator[tuple[int, ...] | tuple[int, int, str, int, int]]:
    """What leaves the child no file of memopt's, nor one that memopt has inherited."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the folder itself, which is closed by now
            if int(name) > _STANDARD_ERROR and os.get_inheritable(int(name)):
                yield os.POSIX_SPAWN_CLOSE, int(name)
    for number in range(_STANDARD_ERROR + 1):
        yield os.POSIX_SPAWN_OPEN, number, "/dev/null", os.O_RDWR, 0


def _limit(pid: int, size: int) -> None:
    for what, most in ((resource.RLIMIT_AS, size + SPARE_BYTES), (resource.RLIMIT_CPU, PROCESSOR_SECONDS),
                       (resource.RLIMIT_CORE, 0)):
        resource.prlimit(pid, what, (most, most))


def _free_address(snapshot: Snapshot) -> int:
    """An address for the child's own page that neither a mapping nor a page of the snapshot takes."""
    taken = sorted([(r.start, r.end) for r in snapshot.ranges] + [(p.start, p.end) for p in snapshot.pages])
    address = LOWEST
    for start, end in taken:
        if start >= address + _STEP:
            break
        address = max(address, -(-end // _STEP) * _STEP)
    if address + _STEP > TOP:
        raise SnapshotError("it leaves no address free")
    return address


def _origin(snapshot: Snapshot) -> tuple[Mapping, ...]:
    return tuple(Mapping(r.start, r.end, r.access, r.shared, 0, "00:00", 0, r.name) for r in snapshot.ranges)


def _fill(tracee: Tracee, snapshot: Snapshot, base: int) -> None:
    """Remove what the kernel has mapped, map the pages, set the registers."""
    place = remote_calls.find_place(tracee, 288)
    _call(tracee, [Call(remote_calls.SYS_MUNMAP, (m.start, m.end - m.start)) for m in mappings(tracee.pid)
                   if not m.start <= base < m.end and m.start < TOP], place)
    parts = list(_parts(snapshot))
    try:
        results = _call(tracee, [Call(remote_calls.SYS_MMAP, (start, len(content), access,
                                                              _PRIVATE_ANONYMOUS | _FIXED_NOREPLACE, -1, 0))
                                 for start, content, access in parts], place)
        for (start, content, _), result in zip(parts, results, strict=True):
            if result != start:
                raise SnapshotError(f"its page at {start:#x} cannot be mapped here")
            tracee.memory.write(start, content)
        given = {name: snapshot.registers[name] for name in REGISTERS}
        registers = replace(Registers(**given), rip=snapshot.nest.header, cs=_CODE, ss=_STACK_SEGMENT, ds=0, es=0, fs=0,
                            gs=0, eflags=given["eflags"] & _FLAGS | _ALWAYS)
        tracee.set_vector_state(image_of(snapshot.state, tracee.vector_state()))
        tracee.set_registers(registers.outside_call())
    except (OSError, Rejected) as error:
        raise SnapshotError(f"its state cannot be set up here: {error}") from error


def _call(tracee: Tracee, calls: Sequence[Call], place: remote_calls.UnusedBytes) -> list[int]:
    found: list[int] = []
    for at in range(0, len(calls), _BATCH):
        found += remote_calls.run(tracee, calls[at:at + _BATCH], place=place)
    return found


def _parts(snapshot: Snapshot) -> Iterator[tuple[int, bytes, int]]:
    """Address, content and access of the pages, in pieces that are accessed alike."""
    origin = _origin(snapshot)
    for pages in snapshot.pages:
        at = pages.start
        while at < pages.end:
            mapping = mapping_at(origin, at)
            if mapping is None or mapping.end % PAGE:
                raise SnapshotError(f"its page at {at:#x} is in none of its mappings")
            end = min(mapping.end, pages.end)
            yield at, pages.content[at - pages.start:end - pages.start], sum(_ACCESS.get(p, 0) for p in mapping.perms)
            at = end


def with_room_for(shadow: Shadow, header: int, program: str, sizes: tuple[int, int, int]) -> Placement:
    """Pages for a version in the sandbox. ``program``: the name of the file of the code; ``sizes``: bytes of code,
    frame and scratch. Raises ``Rejected(NO_ROOM)``, SnapshotError."""
    code_size, frame_size, scratch_size = sizes
    if scratch_size > MOST_SCRATCH:
        raise SnapshotError(f"a version of it needs {scratch_size >> 20} MiB, more than {MOST_SCRATCH >> 20}")
    maps = sorted((*shadow.origin, *mappings(shadow.pid)), key=lambda m: m.start)
    gaps = free_gaps(maps, LOWEST)
    total = code_size + STATISTICS_SIZE + frame_size
    code = choose_near(gaps, header, total)
    taken = Mapping(code, code + total, "rw-", False, 0, "00:00", 0, "")
    left = free_gaps(sorted((*maps, taken), key=lambda m: m.start), LOWEST)
    scratch = choose_scratch(maps, left, scratch_size, program)
    statistics = code + code_size
    placement = Placement(code, code_size, statistics + STATISTICS_SIZE, frame_size, statistics, scratch, scratch_size)
    map_alike(shadow.tracee, placement)
    return placement
