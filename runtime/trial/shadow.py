"""Disposable copies of the stopped target, for trial runs that nobody else can notice.

A shadow is forked by an injected clone and traced from its first instruction. It runs under PTRACE_SYSEMU, so that no
system call of its own takes effect, with all signals blocked and its shared mappings made read-only; breakpoints are
planted there and only there. Invariant: without memopt a shadow ends at once (the stub's child path is exit_group,
and later EXITKILL is set), so there is never a second copy of the program on the loose.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum
from types import TracebackType

from memopt.ir.reasons import Rejected
from runtime import faults
from runtime.target import ptrace, remote_calls
from runtime.target.memory import Mapping, exclusive_intervals, mappings
from runtime.target.proc import running_seconds
from runtime.target.ptrace import Registers, Stop, StopKind, TargetEnded, WaitTimeout
from runtime.target.remote_calls import Call, UnusedBytes
from runtime.target.tracee import Tracee, status_field
from runtime.trial import memory_budget

_CLONE_PARENT, _SIGCHLD = 0x8000, 17
_WNOHANG, _WALL = 1, 0x40000000
_PROT_NONE, _PROT_READ, _PROT_READ_WRITE = 0, 1, 3
_MAP_PRIVATE_ANONYMOUS_FIXED = 0x02 | 0x20 | 0x10
_BREAKPOINT = b"\xcc"
_NONZERO = re.compile(rb"[^\0]")
_STUB_BYTES = 288  # for a clone, or _BATCH other calls
_BATCH = 2
_SYSCALL_BYTES = 2
_SYS_WRITE, _SYS_RT_SIGRETURN = 1, 15
_SYS_GETTIMEOFDAY, _SYS_GETRUSAGE, _SYS_TIMES, _SYS_CLOCK_GETTIME = 96, 98, 100, 228
_HARMLESS = frozenset((_SYS_RT_SIGRETURN, _SYS_GETTIMEOFDAY, _SYS_GETRUSAGE, _SYS_TIMES, _SYS_CLOCK_GETTIME))
_MOST_CALLS = 32  # made or pretended on the way to one place
_BEYOND_CALL_S = 0.2  # of processor time, after the first of them: a place that does not come soon may never come again
_SETTLE_S = 10.0
_GLANCE_S = 0.005  # between looks at the copy's processor time
_ASK_S = 0.05  # between questions whether it is still worth while
_STARVED_S = 600.0  # for a copy that gets no processor to use its time on
_STEPS = 100_000  # single steps to get off an instruction with a repeat prefix
_CHUNK = 1 << 20

# The XSAVE area (Intel SDM 1, 13.4): bytes that say how the state is stored, not what it is.
_XSAVE_BOOKKEEPING = (464, 576)


class End(Enum):
    SYSTEM_CALL = "it came to a system call"
    SIGNAL = "it got a signal"
    TIMEOUT = "it took too long"
    ENDED = "it was killed"


class ShadowStopped(Exception):
    """The shadow did not get where it was sent; drop it. ``reason`` and ``detail`` (address, signal) say why.

    ``fault``: the address it could not access, if that is why.
    """

    def __init__(self, reason: End, detail: str = "", fault: int | None = None) -> None:
        super().__init__(reason.value + (f" ({detail})" if detail else ""))
        self.reason = reason
        self.detail = detail
        self.fault = fault


@dataclass(frozen=True, slots=True)
class Difference:
    """Bytes that two shadows disagree on, from ``address`` on."""

    address: int
    first: bytes
    second: bytes

    def __str__(self) -> str:
        return f"{self.address:#x}: {self.first.hex()} / {self.second.hex()}"


def fork_shadow(tracee: Tracee, copies: int = 1) -> Shadow:
    """Fork the stopped target, or a shadow. ``copies``: how many there may be at a time, for the memory budget.

    Raises ``Rejected`` (NO_MEMORY, SHARED_MAPPING, ...), ``TargetEnded``. The target stays stopped as it was.
    """
    memory_budget.check_copies(tracee.pid, copies)
    inherited = status_field(tracee.pid, "PPid") == str(os.getpid())
    flags = _CLONE_PARENT | _SIGCHLD if inherited else 0
    registers = tracee.registers().outside_call()
    place = remote_calls.find_place(tracee, _STUB_BYTES)
    children: list[Tracee] = []

    def appeared(pid: int) -> None:
        child = Tracee(pid)
        child.adopt()
        child.set_options(ptrace.OPTION_EXITKILL)
        children.append(child)

    options = tracee.options
    tracee.set_options(options | ptrace.OPTION_FORK | ptrace.OPTION_CLONE)
    faults.point("shadow.fork")
    clone = Call(remote_calls.SYS_CLONE, (flags, 0, 0, 0, 0), child_exits=True)
    result, = remote_calls.run(tracee, (clone,), place=place, new_process=appeared)
    tracee.set_options(options)
    remote_calls.check(result, "fork")
    shadow = Shadow(children[0], 0 if inherited else result)
    try:
        _settle(children[0], place, registers)
    except BaseException:
        shadow.kill()
        raise
    return shadow


@contextmanager
def copies_of(shadow: Shadow, count: int) -> Iterator[tuple[Shadow, ...]]:
    """``count`` shadows of a shadow: the target is not even stopped for them. Raises what ``fork_shadow`` does."""
    copies: list[Shadow] = []
    try:
        with ExitStack() as stack:
            for _ in range(count):
                copies.append(stack.enter_context(fork_shadow(shadow.tracee, 1 + count)))
            yield tuple(copies)
    finally:
        with suppress(TargetEnded):
            reap(shadow.tracee, copies)


def reap(tracee: Tracee, shadows: Iterable[Shadow]) -> None:
    """Let the stopped target collect killed shadows, so that no zombie stays (none do when memopt is the parent)."""
    calls = [Call(remote_calls.SYS_WAIT4, (shadow.zombie, 0, _WNOHANG | _WALL, 0))
             for shadow in shadows if shadow.zombie]
    for start in range(0, len(calls), _BATCH):
        remote_calls.run(tracee, calls[start:start + _BATCH])


def _settle(child: Tracee, place: UnusedBytes, registers: Registers) -> None:
    """Turn a fresh child into the program at the place of its fork, cut off from memory shared with others."""
    child.set_registers(registers)
    child.memory.write(place.start, bytes(_STUB_BYTES))
    try:  # should memory run out after all, the kernel is to take the shadow
        with open(f"/proc/{child.pid}/oom_score_adj", "w", encoding="ascii") as file:
            file.write("1000")
    except OSError:
        pass
    calls, contents = [], []
    for mapping in mappings(child.pid):
        if mapping.shared and mapping.writable:
            call, content = _cut_off(child, mapping)
            calls.append(call)
            contents += [(mapping.start, content)] if content else []
    for start in range(0, len(calls), _BATCH):
        for result in remote_calls.run(child, calls[start:start + _BATCH], place=place):
            remote_calls.check(result, "cutting a trial copy off shared memory")
    for address, content in contents:
        child.memory.write(address, content)


def _cut_off(child: Tracee, mapping: Mapping) -> tuple[Call, bytes]:
    """memopt's own statistics get a private copy; other shared memory is only read, devices not even that."""
    size = mapping.end - mapping.start
    if mapping.path.startswith("/memfd:memopt"):
        arguments = (mapping.start, size, _PROT_READ_WRITE, _MAP_PRIVATE_ANONYMOUS_FIXED, -1, 0)
        # Nothing is readable in the pages of a memopt that was killed before it gave the file its size.
        return Call(remote_calls.SYS_MMAP, arguments), child.memory.read_some(mapping.start, size)
    device = mapping.path.startswith("/dev/") and not mapping.path.startswith(("/dev/shm/", "/dev/zero"))
    return Call(remote_calls.SYS_MPROTECT, (mapping.start, size, _PROT_NONE if device else _PROT_READ)), b""


class Shadow:
    """A stopped copy. A context manager: leaving it kills the copy.

    ``zombie`` is its number in the target's eyes where the target must collect it (``reap``), else 0. ``given_up``:
    asked now and then while it runs; where it says so, the copy has taken too long.
    """

    def __init__(self, tracee: Tracee, zombie: int) -> None:
        self.tracee = tracee
        self.zombie = zombie
        self.given_up: Callable[[], bool] | None = None

    def __enter__(self) -> Shadow:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self.tracee.pid

    def run_to(self, address: int, timeout_s: float, hits: int = 1) -> float:
        """Run until the ``hits``-th arrival at ``address`` (being there already is not one); processor seconds used.

        On the way the copy may ask for the time, and what it writes counts as written: programs say how far they are.
        ``timeout_s``: of the copy's processor time, so that a busy machine changes no answer. ``address`` must be the
        start of an instruction. Raises ``ShadowStopped``.
        """
        before = self._processor_time()
        limit = before + timeout_s
        try:
            for _ in range(hits):
                self._leave(address, limit)
                self._arrive((address,), limit)
        except TargetEnded as ended:
            raise ShadowStopped(End.ENDED) from ended
        return self._processor_time() - before

    def run_out(self, addresses: Collection[int], timeout_s: float) -> float:
        """``run_to`` the first of several ``addresses``, at none of which the shadow stands."""
        before = self._processor_time()
        try:
            self._arrive(addresses, before + timeout_s)
        except TargetEnded as ended:
            raise ShadowStopped(End.ENDED) from ended
        return self._processor_time() - before

    def registers(self) -> Registers:
        return self.tracee.registers()

    def set_registers(self, registers: Registers) -> None:
        self.tracee.set_registers(registers.outside_call())

    def vector_state(self) -> bytes:
        """All extended state (x87, vector, masks, MXCSR) in a form where equal states have equal bytes."""
        raw = self.tracee.vector_state()
        start, end = _XSAVE_BOOKKEEPING
        return raw[:start] + bytes(end - start) + raw[end:]

    def read(self, address: int, size: int) -> bytes:
        return self.tracee.memory.read(address, size)

    def write(self, address: int, data: bytes) -> None:
        """Write to this copy only: its read-only and code pages too, but never to memory that is still shared."""
        self.tracee.memory.write(address, data)

    patch = write

    def written_pages(self) -> tuple[tuple[int, int], ...]:
        """Intervals of the pages written since the fork (a superset: see ``exclusive_intervals``)."""
        return tuple(interval for mapping in _private(mappings(self.pid))
                     for interval in exclusive_intervals(self.pid, mapping.start, mapping.end))

    def rseq_area(self) -> tuple[int, int]:
        """Bytes ``[start, end)`` that the kernel writes by itself, whenever the thread changes processors."""
        address, size = ptrace.rseq_area(self.pid)
        return address, address + size

    def kill(self) -> None:
        """End the copy and collect it. The target's own ``reap`` is still to be done where ``zombie`` is set."""
        try:
            os.kill(self.pid, signal.SIGKILL)
            while True:
                ptrace.wait(self.pid, 10.0)
        except (TargetEnded, WaitTimeout, ProcessLookupError):
            self.tracee.memory.close()

    def _processor_time(self) -> float:
        """Seconds on a processor, page faults included (/proc/PID/schedstat; exact for a stopped thread)."""
        return running_seconds(self.pid) or time.monotonic()

    def _leave(self, address: int, limit: float) -> None:
        """Execute the instruction at ``address`` if the shadow stands there."""
        for _ in range(_STEPS):
            if self.registers().rip != address:
                return
            stop = self._go(ptrace.SYSEMU_SINGLESTEP, limit)
            if stop.signal != signal.SIGTRAP:
                raise self._stopped_by(stop)
        raise ShadowStopped(End.TIMEOUT, f"in a one-instruction loop at {address:#x}")

    def _arrive(self, addresses: Collection[int], limit: float) -> None:
        originals = {address: self.read(address, 1) for address in addresses}
        for address in originals:
            self.write(address, _BREAKPOINT)
        try:
            stop = self._go(ptrace.SYSEMU, limit)
        finally:
            for address, original in originals.items():
                self.write(address, original)
        registers = self.registers()
        if stop.signal != signal.SIGTRAP or registers.rip - 1 not in originals:
            raise self._stopped_by(stop)
        self.set_registers(replace(registers, rip=registers.rip - 1))

    def _go(self, how: int, limit: float) -> Stop:
        """Run to the next stop that is not a stop signal's, until the copy's processor time is ``limit``; then it is
        stopped first."""
        calls = 0
        while True:
            self.tracee.go(how, self.pid)
            try:
                stop = self._wait(limit)
            except WaitTimeout as error:
                self.tracee.stop(10.0)
                raise ShadowStopped(End.TIMEOUT, f"at {self.registers().rip:#x}") from error
            call = self.registers().orig_rax if stop.kind is StopKind.SYSCALL and calls < _MOST_CALLS else None
            calls += 1
            if call is not None and call != _SYS_RT_SIGRETURN:
                limit = min(limit, self._processor_time() + _BEYOND_CALL_S)
            if call in _HARMLESS:
                self._make(call)
            elif call == _SYS_WRITE:
                registers = self.registers()
                self.set_registers(replace(registers, rax=registers.rdx))
            elif stop.kind in (StopKind.SIGNAL, StopKind.SYSCALL) and stop.signal != signal.SIGSTOP:
                return stop

    def _wait(self, limit: float) -> Stop:
        """The next stop; ``WaitTimeout`` when the copy has used its processor time up to ``limit``."""
        pause, starved = _GLANCE_S, time.monotonic() + _STARVED_S
        while True:
            try:
                return self.tracee.wait(self.pid, pause)
            except WaitTimeout:
                left = limit - self._processor_time()
                if left <= 0 or time.monotonic() > starved or (self.given_up is not None and self.given_up()):
                    raise
                pause = max(_GLANCE_S, left if self.given_up is None else min(left, _ASK_S))

    def _make(self, call: int) -> None:
        """Let a system call happen that changes nothing but the caller. A fork often falls into a handler, because a
        signal is what stops a program that is being attached to."""
        registers = self.registers()
        self.set_registers(replace(registers, rip=registers.rip - _SYSCALL_BYTES, rax=call))
        for _ in ("exit of the call that was not made", "entry of the same call, made now", "exit"):
            self.tracee.go(ptrace.SYSCALL, self.pid)
            self.tracee.wait(self.pid, _SETTLE_S)
        if call == _SYS_RT_SIGRETURN:
            self.tracee.set_signal_mask(remote_calls.ALL_SIGNALS)  # it has just restored the program's

    def _stopped_by(self, stop: Stop) -> ShadowStopped:
        registers = self.registers()
        if stop.kind is StopKind.SYSCALL:
            return ShadowStopped(End.SYSTEM_CALL, f"number {registers.orig_rax} at {registers.rip - 2:#x}")
        fault = ptrace.get_fault_address(self.pid) if stop.signal in (signal.SIGSEGV, signal.SIGBUS) else None
        return ShadowStopped(End.SIGNAL, f"{signal.Signals(stop.signal).name} at {registers.rip:#x}", fault)


def compare(first: Shadow, second: Shadow, ignore: Sequence[tuple[int, int]] = (), limit: int = 16
            ) -> tuple[Difference, ...]:
    """Where the private memory of two shadows differs; at most ``limit`` places, ``ignore``: intervals left out.

    Precondition: both were forked in the same stop of the target, so that only pages that one of them (or the
    target) has written since can differ. The kernel's own rseq areas are left out.
    """
    ignored = (*ignore, first.rseq_area(), second.rseq_area())
    differences: list[Difference] = []
    pages = _union((*first.written_pages(), *second.written_pages()))
    for start, end in _chunks(pages):
        try:
            ours, theirs = first.read(start, end - start), second.read(start, end - start)
        except Rejected:  # mapped in one only: the stack has grown there
            differences.append(Difference(start, b"", b""))
            continue
        if ours != theirs:
            differences += _unequal(start, ours, theirs, ignored, limit)
        if len(differences) >= limit:
            break
    return tuple(differences[:limit])


def _unequal(start: int, ours: bytes, theirs: bytes, ignored: Sequence[tuple[int, int]],
             limit: int) -> Iterator[Difference]:
    """The first ``limit`` aligned 8-byte words with a difference outside ``ignored``."""
    differing = int.from_bytes(ours, "little") ^ int.from_bytes(theirs, "little")
    unequal = bytearray(differing.to_bytes(len(ours), "little"))
    for low, high in ignored:
        first, last = max(0, low - start), min(len(ours), high - start)
        if first < last:
            unequal[first:last] = bytes(last - first)
    at = 0
    while limit and (byte := _NONZERO.search(unequal, at)):
        word, limit = byte.start() // 8 * 8, limit - 1
        yield Difference(start + word, ours[word:word + 8], theirs[word:word + 8])
        at = word + 8


def _private(maps: Iterable[Mapping]) -> Iterator[Mapping]:
    return (m for m in maps if not m.shared and m.writable and m.readable)


def _union(intervals: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _chunks(intervals: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The intervals cut into pieces that are cheap to hold twice."""
    for start, end in intervals:
        for piece in range(start, end, _CHUNK):
            yield piece, min(piece + _CHUNK, end)


