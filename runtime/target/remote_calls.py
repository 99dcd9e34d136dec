"""Remote system calls: the stopped target itself makes them, in a stub that restores all it has changed.

Example: ``run(tracee, [Call(SYS_MUNMAP, (address, size))])`` makes the target execute

    mov rdi, address; mov rsi, size; mov rax, 11; syscall       the call
    ...; syscall                                                rt_sigprocmask: the signal mask as before
    mov rax, ...; mov rcx, ...; ...; jmp [rip+0]                the registers as before, back into the program

In: a stopped ``Tracee``, calls. Out: their results, negative for ``-errno``. The target is left stopped as it was.
Raises ``Rejected`` (SECCOMP: the thread is confined; NO_ROOM: no place for a stub; BLOCKED: a call does not return).

The stub lies in unused zero bytes between the end of an executable segment and the end of its page. It restores the
signal mask and all registers it has used from immediate operands, and changes no flags. memopt sets the instruction
pointer to the stub in one request, and from then on only watches.

A program may confine itself by seccomp at any time, and the kernel then kills it for a call that it would never make
itself. So ``run`` looks at the thread in the very stop in which it makes it call, every time. One case is left: a
thread that sleeps at the stop is not stopped. If it wakes within these microseconds and confines all threads
(SECCOMP_FILTER_FLAG_TSYNC), the call is judged by that filter.

Invariant: from that request on, the program completes the stub by itself if memopt dies. No byte in use is overwritten,
the stack is not touched, and there is no int3 and no single step. Signals stay blocked until the stub is done, so that
no handler sees an address or a register of the stub; SIGKILL and SIGSTOP act at once.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import Enum

from memopt.ir.frozen import dataclass
from memopt.ir.reasons import Reason, Rejected, VerifyError
from runtime.target import ptrace
from runtime.target.contexts import may_resume
from runtime.target.memory import PAGE, Mapping, Memory, mappings
from runtime.target.ptrace import Registers, StopKind, WaitTimeout
from runtime.target.tracee import STUB_MAGIC, Tracee, field_of

# arch/x86/entry/syscalls/syscall_64.tbl
SYS_MMAP, SYS_MPROTECT, SYS_MUNMAP, SYS_CLOSE, SYS_MADVISE, SYS_CLONE, SYS_WAIT4 = 9, 10, 11, 3, 28, 56, 61
SYS_MEMFD_CREATE = 319
_SYS_RT_SIGPROCMASK, _SYS_EXIT_GROUP, _SIG_SETMASK = 14, 231, 2
ALL_SIGNALS = (1 << 64) - 1
_RESTARTED = range(-516, -511)

_CALL_TIMEOUT_S = 30.0  # a fork of a very large process takes seconds
_AFTER_TABLES = 64  # bytes kept behind the vDSO: the tables at the end of its file may end in zeros

_NUMBERS = {"rax": 0, "rcx": 1, "rdx": 2, "rbx": 3, "rsi": 6, "rdi": 7, "r8": 8, "r9": 9, "r10": 10, "r11": 11}
_ARGUMENTS = ("rdi", "rsi", "rdx", "r10", "r8", "r9")


class Special(Enum):
    """An argument that is not known before the stub runs."""

    KEPT = "the result of the call with keep=True"


KEPT = Special.KEPT


@dataclass(frozen=True, slots=True)
class Call:
    """One system call. An argument is a number, ``KEPT``, or bytes, whose address the call gets.

    ``keep``: the result becomes ``KEPT`` for later calls. ``child_exits``: where the result is 0, in a forked child,
    the stub calls exit_group(0).
    """

    number: int
    arguments: tuple[int | bytes | Special, ...]
    keep: bool = False
    child_exits: bool = False


@dataclass(frozen=True, slots=True)
class UnusedBytes:
    """Unused bytes ``[start, end)`` of an executable page."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Stub:
    """The bytes of a stub, data and code, and the address of its first instruction."""

    code: bytes
    entry: int


def assemble(calls: Sequence[Call], start: int, registers: Registers, mask: int) -> Stub:
    """The stub at address ``start`` that makes ``calls``, restores ``mask`` and ``registers``, and jumps to
    ``registers.rip``.

    Data come first, code behind them. The code uses, and restores, rax, rcx, rdx, rbx, rsi, rdi and r8 to r11.
    """
    data = bytearray(STUB_MAGIC + mask.to_bytes(8, "little"))
    addresses: dict[bytes, int] = {}
    for text in (a for call in calls for a in call.arguments if isinstance(a, bytes)):
        if text not in addresses:
            addresses[text] = start + len(data)
            data += text
    code = bytearray()
    restore_mask = Call(_SYS_RT_SIGPROCMASK, (_SIG_SETMASK, start + len(STUB_MAGIC), 0, 8))
    for call in (*calls, restore_mask):
        for register, argument in zip(_ARGUMENTS, call.arguments, strict=False):
            if isinstance(argument, Special):
                code += _move_from_rbx(register)
            else:
                code += _set(register, addresses[argument] if isinstance(argument, bytes) else argument)
        code += _set("rax", call.number) + b"\x0f\x05"  # syscall
        if call.keep:
            code += b"\x48\x89\xc3"  # mov rbx, rax
        if call.child_exits:
            leave = _set("rdi", 0) + _set("rax", _SYS_EXIT_GROUP) + b"\x0f\x05"
            # xchg rax, rcx; jrcxz leave; jmp behind leave (none of them changes flags)
            code += b"\x48\x91" + b"\xe3\x02" + b"\xeb" + bytes([len(leave)]) + leave
    for register in _NUMBERS:
        code += _set(register, getattr(registers, register))
    code += b"\xff\x25\0\0\0\0" + registers.rip.to_bytes(8, "little")  # jmp [rip+0]
    return Stub(bytes(data + code), start + len(data))


def _set(register: str, value: int) -> bytes:
    """mov register, value: in the short form if 32 bits, zero-extended, are enough."""
    number, value = _NUMBERS[register], value % (1 << 64)
    opcode = bytes([0xB8 | number & 7])
    if value < 1 << 32:
        return (b"\x41" if number >= 8 else b"") + opcode + value.to_bytes(4, "little")
    return bytes([0x48 | number >> 3]) + opcode + value.to_bytes(8, "little")


def _move_from_rbx(register: str) -> bytes:
    number = _NUMBERS[register]
    return bytes([0x48 | number >> 3, 0x89, 0xD8 | number & 7])


def check_callable(tracee: Tracee) -> None:
    """Check that the main thread of the stopped target may be made to call: it is not confined, and not ending.

    Raises ``Rejected``: SECCOMP, ENDED. The answer holds as long as the target is stopped.
    """
    try:
        with open(f"/proc/{tracee.pid}/status", encoding="utf-8", errors="replace") as file:  # of this one thread
            status = file.read().splitlines()
    except (FileNotFoundError, ProcessLookupError) as error:
        raise Rejected(Reason.ENDED, f"process {tracee.pid}") from error
    if field_of(status, "State")[:1] in ("Z", "X"):
        raise Rejected(Reason.ENDED, f"process {tracee.pid} is ending")
    if (confined := field_of(status, "Seccomp")) not in ("", "0"):  # "": a kernel without seccomp
        raise Rejected(Reason.SECCOMP, f"Seccomp: {confined} in /proc/{tracee.pid}/status")


def find_place(tracee: Tracee, size: int, maps: Sequence[Mapping] | None = None) -> UnusedBytes:
    """The largest unused end of an executable page. Raises ``Rejected(NO_ROOM)`` if none has ``size`` bytes.

    ``maps``: the memory map, if it was read in this stop.

    Bytes are unused if they lie behind the end of the segment in the file, are zero, and lie behind any stub that a
    killed memopt has left there. A signal may have come between the last instructions of such a stub, and the program
    may return into it at any time: it is written over only if there is no room elsewhere, and nobody can. The text of a
    static program may fill its last page. Then the bytes behind the vDSO's code are taken: a write gives the process a
    copy of its own of that page.
    """
    maps = mappings(tracee.pid) if maps is None else maps
    best = UnusedBytes(0, 0)
    for mapping in maps:
        place = _padding(tracee.memory, maps, mapping)
        if place is not None and place.end - place.start > best.end - best.start:
            best = max(best, _unused(tracee.memory, place), key=lambda p: p.end - p.start)
    if best.end - best.start < size:
        best = max((best, *_given_up(tracee, maps)), key=lambda p: p.end - p.start)
    if best.end - best.start < size:
        found = (_behind_kernel_code(tracee.memory, mapping) for mapping in maps)
        best = next((place for place in found if place is not None), best)
    if best.end - best.start < size:
        raise Rejected(Reason.NO_ROOM, f"no {size} unused bytes on an executable page to make a system call from")
    return best


def _padding(memory: Memory, maps: Sequence[Mapping], mapping: Mapping) -> UnusedBytes | None:
    """The bytes between the end of the executable segment that is mapped at ``mapping`` and the end of its page."""
    if not mapping.executable or mapping.writable or mapping.shared or not mapping.inode:
        return None
    if mapping.path.startswith(("/memfd:", "[")):
        return None
    first = next((m for m in maps if (m.device, m.inode) == (mapping.device, mapping.inode) and m.offset == 0), None)
    if first is None or not first.readable:
        return None
    for offset, file_bytes, memory_bytes in _executable_segments(memory.read(first.start, PAGE)):
        end = mapping.start + offset + file_bytes - mapping.offset
        if (offset // PAGE * PAGE == mapping.offset and file_bytes == memory_bytes
                and mapping.end - PAGE < end <= mapping.end):
            return UnusedBytes(-(-end // 16) * 16, mapping.end)
    return None


def _behind_kernel_code(memory: Memory, mapping: Mapping) -> UnusedBytes | None:
    if mapping.path != "[vdso]" or not mapping.executable:
        return None
    used = len(memory.read(mapping.start, mapping.end - mapping.start).rstrip(bytes(1)))
    start = -(-(mapping.start + used) // 16) * 16 + _AFTER_TABLES
    return UnusedBytes(start, mapping.end) if start < mapping.end else None


def _executable_segments(header: bytes) -> list[tuple[int, int, int]]:
    """``(offset, file size, memory size)`` of each executable PT_LOAD; empty if this is no ELF-64 file.

    ``header``: the first page of the file.
    """
    if header[:5] != b"\x7fELF\x02":
        return []
    table, = struct.unpack_from("<Q", header, 32)
    entry_size, count = struct.unpack_from("<HH", header, 54)
    if entry_size != 56 or table + 56 * count > len(header):
        return []
    result = []
    for index in range(count):
        kind, flags, offset, _, _, file_bytes, memory_bytes, _ = struct.unpack_from("<IIQQQQQQ", header,
                                                                                   table + 56 * index)
        if kind == 1 and flags & 1:
            result.append((offset, file_bytes, memory_bytes))
    return result


def _unused(memory: Memory, place: UnusedBytes) -> UnusedBytes:
    """The part of ``place`` that is zero to its end; none of it if something other than a stub lies in front."""
    content = memory.read(place.start, place.end - place.start)
    used = len(content.rstrip(bytes(1)))
    if not used:
        return place
    if not content.startswith(STUB_MAGIC):
        return UnusedBytes(place.end, place.end)
    # The last eight bytes of a stub are an address: it ends in zeros.
    return UnusedBytes(min(place.end, -(-(place.start + used + 8) // 16) * 16), place.end)


def _given_up(tracee: Tracee, maps: Sequence[Mapping]) -> Iterator[UnusedBytes]:
    """Places that hold stubs of killed memopts, to which nobody can return. These are cleared."""
    for mapping in maps:
        place = _padding(tracee.memory, maps, mapping)
        if place is not None and tracee.memory.read(place.start, len(STUB_MAGIC)) == STUB_MAGIC:
            with suppress(Rejected):  # too much memory to be sure
                if not may_resume(tracee, place.start, place.end):
                    tracee.memory.write(place.start, bytes(place.end - place.start))
                    yield place


def run(tracee: Tracee, calls: Sequence[Call], *, place: UnusedBytes | None = None,
        observe: Callable[[int, int], None] | None = None, new_process: Callable[[int], None] | None = None,
        results: list[int] | None = None) -> tuple[int, ...]:
    """Make ``calls`` in the stopped target; the results, negative for ``-errno``. The target is left stopped as it was.

    Precondition: ``tracee.stop()`` has succeeded, and no thread has run since.
    ``place``: where the stub goes, by default ``find_place``.
    ``observe(index, result)``: called after each call, while the target is stopped behind it. An exception of it is
    raised only when the stub is done.
    ``new_process(pid)``: called when a call has made a child, which is traced, too.
    ``results``: a list that is filled with the results, for callers that need them even after an exception.
    Raises ``Rejected``: SECCOMP, ENDED, NO_ROOM, BLOCKED.
    """
    check_callable(tracee)
    saved, mask = tracee.registers().outside_call(), tracee.signal_mask()
    place = place or find_place(tracee, len(assemble(calls, 1 << 40, saved, mask).code))
    stub = assemble(calls, place.start, saved, mask)
    if len(stub.code) > place.end - place.start:
        raise VerifyError(f"a stub of {len(stub.code)} bytes does not fit {place}")
    if place.start <= saved.rip < place.end:
        raise Rejected(Reason.BLOCKED, "it still executes an earlier system call of memopt's")
    tracee.memory.write(place.start, stub.code)
    # From here until the same two requests below, in reverse order, the stub would restore both if memopt died.
    tracee.set_registers(replace(saved, rip=stub.entry))
    tracee.set_signal_mask(ALL_SIGNALS)
    results = [] if results is None else results
    failure: Exception | None = None
    for index in range(len(calls)):
        results.append(_finish_call(tracee, place, new_process))
        if observe is not None and failure is None:
            try:
                observe(index, results[-1])
            except (OSError, Rejected, VerifyError) as error:
                failure = error
    tracee.set_signal_mask(mask)
    tracee.set_registers(saved)
    tracee.memory.write(place.start, bytes(len(stub.code)))
    if failure is not None:
        raise failure
    return tuple(results)


def _finish_call(tracee: Tracee, place: UnusedBytes, new_process: Callable[[int], None] | None) -> int:
    """Run the target to the exit of its next system call; the call's result."""
    number = 0
    while True:
        tracee.go(ptrace.SYSCALL, tracee.pid, number)
        try:
            stop = tracee.wait(tracee.pid, _CALL_TIMEOUT_S)
        except WaitTimeout as error:
            raise Rejected(Reason.BLOCKED, "a system call that memopt makes in it does not return") from error
        number = stop.signal if stop.kind is StopKind.SIGNAL else 0
        if stop.kind is StopKind.NEW_PROCESS and new_process is not None:
            new_process(ptrace.get_event_message(tracee.pid))
        if stop.kind is not StopKind.SYSCALL:
            continue
        done = ptrace.syscall_result(tracee.pid)
        if done is None or done[1] in _RESTARTED:
            continue
        if not place.start <= done[0] <= place.end:
            raise VerifyError(f"a system call at {done[0]:#x}, not one of the stub's at {place.start:#x}")
        return done[1]


def check(result: int, what: str) -> int:
    """``result`` if it is no error. ``what``: the call, for the message.

    Raises ``Rejected``: NO_MEMORY if memory or a limit is exhausted, PROTECTED_MAPPING for any other error.
    """
    if not -4096 < result < 0:
        return result
    reason = Reason.NO_MEMORY if -result in _EXHAUSTED else Reason.PROTECTED_MAPPING
    raise Rejected(reason, f"{what}: {os.strerror(-result)}")


_EXHAUSTED = frozenset({errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOSPC})
