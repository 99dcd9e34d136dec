"""Suspended contexts: may anybody go on at an address later, though no thread stands there now?

Example: a timer interrupts a task in a loop, and its handler switches to another task by swapcontext(3). The first task
then stands in the loop, but no thread does: its instruction pointer is a word in a ``ucontext_t`` somewhere in memory.
A handler whose frame is a megabyte large hides the interrupted code as well.

In: a stopped ``Tracee``, code addresses. Out: whether anybody stands there or may come back to it. Raises ``Rejected``
where that cannot be told: BLOCKED (a thread wakes up just now), NO_ROOM (there is too much memory to search).

Why this finds everybody: a thread's place is in its registers. A context that does not run is in memory, and its
instruction pointer is an aligned word there: the kernel (arch/x86/kernel/signal_64.c) and C libraries store it so. All
memory that the program can write is searched, conservatively as garbage collectors do (Boehm and Weiser 1988): any word
with such a value counts, also one that is left over. So the answer "nobody" is certain, and "somebody" may be wrong.
Below the stack pointer is searched, too, because stacks of other contexts may lie there. But a signal frame counts for
nothing if a thread runs on the same stack further up: the handler was left, by its return or by longjmp(3).

Where the program has no signal handler, no code of it is interrupted, and where all its handlers end it or return at
once (runtime/target/sigsegv.py), none is left suspended. A handler may be running, also one that was reset when it was
called (SA_RESETHAND). So the stacks of the threads are searched even then, and only they.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Container, Iterator, Sequence

from memopt.ir.reasons import Reason, Rejected
from runtime.target.memory import PAGE, Mapping, Memory, mapping_at, mappings, present_intervals
from runtime.target.proc import running_seconds
from runtime.target.tracee import Tracee, status_field, threads

_SYSCALL_BYTES = 2
_WORD = 8
_CHUNK = 1 << 20
_RED_ZONE = 128
# struct rt_sigframe (arch/x86/include/asm/sigframe.h): the address that the handler returns to, then a ucontext, with
# the registers r8 .. r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip at its offset 40. The vector state lies above it.
_FRAME_RIP = 8 + 40 + 16 * 8
_LARGEST_FRAME = 16 << 10
_SIGRETURN = b"\x48\xc7\xc0\x0f\0\0\0\x0f\x05", b"\xb8\x0f\0\0\0\x0f\x05"  # mov rax, 15; syscall
_STACK_BYTES = 64 << 20  # of a stack that is searched, from the stack pointer up
# The program is stopped meanwhile, at about 2 GB/s. A larger one is searched once that is 2 % of its time.
LARGEST, MORE_EACH_SECOND = 512 << 20, 40 << 20
_MAPPED = 16  # times as much may be mapped: which pages of it are in use costs time as well
MEMOPT_FILE = "/memfd:memopt"


def interrupted_by_handlers(pid: int) -> bool:
    """Whether the process handles any signal (SigCgt in /proc/PID/status)."""
    return int(status_field(pid, "SigCgt") or "0", 16) != 0


def standing(tracee: Tracee) -> tuple[int, ...]:
    """The instruction pointers of all threads, also of those that sleep and are not stopped.

    A thread whose system call is restarted goes on at the syscall instruction: both places are named. Raises
    ``Rejected(BLOCKED)`` if a thread that is not stopped has just woken up.
    """
    found: list[int] = []
    for tid in tracee.threads:
        registers = tracee.registers(tid)
        found += (registers.rip, registers.rip - _SYSCALL_BYTES) if registers.restarting else (registers.rip,)
    for tid in threads(tracee.pid):
        if tid not in tracee.threads:
            found += _asleep_at(tracee.pid, tid)
    return tuple(found)


def _asleep_at(pid: int, tid: int) -> tuple[int, ...]:
    """The last word of /proc/PID/task/TID/syscall: the program counter of a thread that waits, for a page as well."""
    try:
        with open(f"/proc/{pid}/task/{tid}/syscall", encoding="ascii") as file:
            words = file.read().split()
    except (FileNotFoundError, ProcessLookupError):
        return ()  # it has ended
    except OSError as error:  # a kernel without this file
        raise Rejected(Reason.BLOCKED, f"it is not known where thread {tid} stands: {error.strerror}") from error
    if len(words) < 2:
        raise Rejected(Reason.BLOCKED, f"thread {tid} has just woken up")
    place = int(words[-1], 16)
    return place, place - _SYSCALL_BYTES


def may_resume(tracee: Tracee, low: int, high: int) -> bool:
    """Whether anybody stands in ``[low, high)``, or may come back to it. Raises ``Rejected``: BLOCKED, NO_ROOM."""
    return any(low <= place < high for place in standing(tracee)) or suspended(tracee, low, high)


def suspended(tracee: Tracee, low: int, high: int, only: Container[int] | None = None,
              ignored: Sequence[tuple[int, int]] = (), *, everywhere: bool | None = None) -> bool:
    """Whether a context that does not run may go on at an address in ``[low, high)``.

    ``only``: of these addresses, those in this set. ``ignored``: memory of memopt's, which is not searched.
    ``everywhere``: search all memory, or the stacks of threads only; None: all if the program handles any signal by
    now. Raises ``Rejected(NO_ROOM)`` if there is too much memory to search.
    """
    everywhere = interrupted_by_handlers(tracee.pid) if everywhere is None else everywhere
    spans = _all(tracee, ignored) if everywhere else _stacks(tracee)
    pointers = [tracee.registers(tid).rsp for tid in tracee.threads]
    return any((only is None or value in only) and not any(_left(tracee.memory, at, pointer) for pointer in pointers)
               for start, end in spans for at, value in words_between(tracee.memory, start, end, low, high))


def _left(memory: Memory, at: int, pointer: int) -> bool:
    """Whether the word at ``at`` is the instruction pointer in a signal frame that was left.

    The kernel pushes the frame right below the stack pointer of the code that it interrupts. A thread whose stack
    pointer lies between the two runs on this stack, and all that is further down is dead (System V ABI, 3.2.2).
    """
    if not at + _WORD <= pointer - _RED_ZONE or pointer - at > _LARGEST_FRAME:
        return False
    frame = memory.read_some(at - _FRAME_RIP, _FRAME_RIP)
    if len(frame) < _FRAME_RIP:
        return False
    restorer, interrupted = struct.unpack_from("<Q", frame)[0], struct.unpack_from("<Q", frame, _FRAME_RIP - _WORD)[0]
    return (pointer <= interrupted < at + _LARGEST_FRAME
            and memory.read_some(restorer, max(map(len, _SIGRETURN))).startswith(_SIGRETURN))


def _stacks(tracee: Tracee) -> list[tuple[int, int]]:
    maps = mappings(tracee.pid)
    spans = [(m.start, m.end) for m in maps if m.path == "[stack]"]
    for tid in tracee.threads:
        pointer = tracee.registers(tid).rsp
        place = mapping_at(maps, pointer)
        if place is not None and place.path != "[stack]":
            start = max(place.start, (pointer - _RED_ZONE) // _WORD * _WORD)
            spans.append((start, min(place.end, start + _STACK_BYTES)))
    return spans


def _all(tracee: Tracee, ignored: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The memory in use that the program can write. Raises ``Rejected(NO_ROOM)`` if it is too much."""
    maps = [mapping for mapping in mappings(tracee.pid) if _may_hold_contexts(mapping)]
    most = LARGEST + int(MORE_EACH_SECOND * running_seconds(tracee.pid))
    _check_size(sum(mapping.end - mapping.start for mapping in maps), _MAPPED * most)
    spans = [span for mapping in maps for span in _in_use(tracee.pid, mapping)
             if not any(low <= span[0] and span[1] <= high for low, high in ignored)]
    _check_size(sum(end - start for start, end in spans), most)
    return spans


def _check_size(size: int, most: int) -> None:
    if size > most:
        raise Rejected(Reason.NO_ROOM, f"{size >> 20} MiB would have to be searched for suspended contexts, "
                                       f"{most >> 20} MiB is the limit")


def _may_hold_contexts(mapping: Mapping) -> bool:
    device = mapping.path.startswith("/dev/") and not mapping.path.startswith(("/dev/shm/", "/dev/zero"))
    return mapping.writable and not device and not mapping.path.startswith((MEMOPT_FILE, "[v"))


def _in_use(pid: int, mapping: Mapping) -> Sequence[tuple[int, int]]:
    """The parts of a mapping that may have been written. The pages of shared memory need not be known here."""
    return ((mapping.start, mapping.end),) if mapping.shared else present_intervals(pid, mapping.start, mapping.end)


def words_between(memory: Memory, start: int, end: int, low: int, high: int) -> Iterator[tuple[int, int]]:
    """Address and value of each aligned word in the memory ``[start, end)`` that is in ``[low, high)``; unreadable
    pages have none."""
    buffer = bytearray(_CHUNK)
    for piece in range(start, end, _CHUNK):
        view = memoryview(buffer)[:min(_CHUNK, end - piece) // _WORD * _WORD]
        try:
            memory.read_into(piece, view)
        except Rejected as rejected:
            if rejected.reason is not Reason.PROTECTED_MAPPING:
                raise
            if len(view) > PAGE:
                for page in range(piece, piece + len(view), PAGE):
                    yield from words_between(memory, page, min(page + PAGE, end), low, high)
            continue
        for index, value in _between(view, low, high):
            yield piece + _WORD * index, value


def _between(view: memoryview, low: int, high: int) -> Iterator[tuple[int, int]]:
    """Index and value of each word of ``view`` in ``[low, high)``."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        yield from ((index, value) for index, value in enumerate(view.cast("Q")) if low <= value < high)
        return
    values = numpy.frombuffer(view, numpy.uint64)
    for index in numpy.flatnonzero(values - numpy.uint64(low) < numpy.uint64(high - low)):
        yield int(index), int(values[index])


def get_ready(pid: int) -> None:
    """Import what a search of all memory needs, if there may be one. It takes a tenth of a second, in which the program
    should not stand still; to search the stacks alone takes about a millisecond without it."""
    if interrupted_by_handlers(pid):
        import numpy  # noqa: F401
