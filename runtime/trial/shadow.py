"""Shadows: disposable forked copies of the stopped target, for trial runs that have no effect outside the copy.

In: a stopped ``Tracee``, the program's or that of another shadow. Out: a ``Shadow``: it runs to an address, its
registers and memory are read and written, and ``compare`` finds where the memory of two shadows differs. Raises
``Rejected`` if no copy can be made, ``ShadowStopped`` if it does not get to the address.

The target makes the clone system call in a stub; the child is traced from its first instruction. It runs under
PTRACE_SYSEMU, so that its system calls take no effect (but for a few harmless ones, see ``run_to``). All signals are
blocked. It has no descriptors, and nothing that is shared with others (runtime/trial/isolation.py). Only shadows get
breakpoints, never the program.

Invariant: without memopt a shadow ends at once: the stub's path for the child is exit_group, and later EXITKILL is set.
So no second copy of the program ever runs freely.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from enum import Enum
from types import TracebackType

from memopt.ir.frozen import dataclass
from memopt.ir.reasons import Rejected
from runtime import faults
from runtime.target import ptrace, remote_calls
from runtime.target.memory import Mapping, exclusive_pages, mappings
from runtime.target.proc import running_seconds
from runtime.target.ptrace import Registers, Stop, StopKind, TargetEnded, WaitTimeout
from runtime.target.remote_calls import Call
from runtime.target.tracee import Tracee, status_field
from runtime.trial import isolation, memory_budget

_CLONE_PARENT, _SIGCHLD = 0x8000, 17
_WNOHANG, _WALL = 1, 0x40000000
_BREAKPOINT = b"\xcc"
_NONZERO = re.compile(rb"[^\0]")
_STUB_BYTES = 288  # for a clone, or _BATCH other calls
_BATCH = 2
_SYSCALL_BYTES = 2
_SYS_WRITE, _SYS_RT_SIGRETURN = 1, 15
_SYS_GETTIMEOFDAY, _SYS_GETRUSAGE, _SYS_TIMES, _SYS_CLOCK_GETTIME = 96, 98, 100, 228
_HARMLESS = frozenset((_SYS_RT_SIGRETURN, _SYS_GETTIMEOFDAY, _SYS_GETRUSAGE, _SYS_TIMES, _SYS_CLOCK_GETTIME))
_MOST_CALLS = 32  # system calls executed, or pretended, on the way to one address
_BEYOND_CALL_S = 0.2  # processor seconds after the first of them: an address not reached soon may never be reached
_SETTLE_S = 10.0  # for one stop of a system call that is executed
_GLANCE_S = 0.005  # between two readings of the copy's processor time
_ASK_S = 0.05  # between two calls of ``given_up``
_STARVED_S = 600.0  # wall-clock limit for a copy that gets no processor
_STEPS = 100_000  # single steps, at most, to leave an instruction with a repeat prefix
_CHUNK = 1 << 20  # bytes of each copy that are compared at once

# The XSAVE area (Intel SDM 1, 13.4): bytes that say how the state is stored, not what it is.
_XSAVE_BOOKKEEPING = (464, 576)


class End(Enum):
    """Why a shadow stopped before its goal, in words for the user."""

    SYSTEM_CALL = "the copy made a system call"
    SIGNAL = "the copy got a signal"
    TIMEOUT = "the copy took too long"
    ENDED = "the copy was killed"


class ShadowStopped(Exception):
    """The shadow did not reach the address it was to run to, and is of no further use.

    ``detail``: the address, system call or signal at which it stopped. ``fault``: the address that it could not access,
    if that was the reason.
    """

    def __init__(self, reason: End, detail: str = "", fault: int | None = None) -> None:
        super().__init__(reason.value + (f" ({detail})" if detail else ""))
        self.reason = reason
        self.detail = detail
        self.fault = fault


@dataclass(frozen=True, slots=True)
class Difference:
    """Bytes from ``address`` on that differ between two shadows; empty if only one has memory there."""

    address: int
    first: bytes
    second: bytes

    def __str__(self) -> str:
        return f"{self.address:#x}: {self.first.hex()} / {self.second.hex()}"


def fork_shadow(tracee: Tracee, copies: int = 1, origin: tuple[Mapping, ...] | None = None) -> Shadow:
    """Fork the stopped target, or another shadow; it stays stopped as it was.

    ``copies``: how many copies there may be at a time, for the memory budget. ``origin``: the memory map of the program
    that a shadow is a copy of. Raises ``Rejected`` (NO_MEMORY, NO_ROOM,
    ...), ``TargetEnded``.
    """
    memory_budget.check_copies(tracee.pid, copies)
    inherited = status_field(tracee.pid, "PPid") == str(os.getpid())
    flags = (_CLONE_PARENT | _SIGCHLD if inherited else 0) | isolation.clone_flags()
    registers = tracee.registers().outside_call()
    maps = mappings(tracee.pid)
    named = [m for m in maps if m.path or m.shared]  # a program may have 60,000 others, and is stopped
    place = remote_calls.find_place(tracee, _STUB_BYTES, named)
    held = isolation.held_by(tracee.pid, named)
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
    shadow = Shadow(children[0], 0 if inherited else result, maps if origin is None else origin)
    try:
        isolation.isolate(children[0], replace(place, end=place.start + _STUB_BYTES), registers, named, held)
    except BaseException:
        shadow.kill()
        raise
    return shadow


@contextmanager
def copies_of(shadow: Shadow, count: int) -> Iterator[tuple[Shadow, ...]]:
    """``count`` copies of a shadow, killed at the end of the block. The program is not stopped for them. Raises as
    ``fork_shadow`` does."""
    copies: list[Shadow] = []
    try:
        with ExitStack() as stack:
            for _ in range(count):
                copies.append(stack.enter_context(fork_shadow(shadow.tracee, 1 + count, shadow.origin)))
                copies[-1].confined = shadow.confined
            yield tuple(copies)
    finally:
        with suppress(TargetEnded):
            reap(shadow.tracee, copies)


def reap(tracee: Tracee, shadows: Iterable[Shadow]) -> None:
    """Let the stopped target wait for killed shadows that are its children, so that no zombies stay.

    Shadows whose parent is memopt need none of this.
    """
    calls = [Call(remote_calls.SYS_WAIT4, (shadow.zombie, 0, _WNOHANG | _WALL, 0))
             for shadow in shadows if shadow.zombie]
    for start in range(0, len(calls), _BATCH):
        remote_calls.run(tracee, calls[start:start + _BATCH])


class Shadow:
    """A stopped copy of the program. A context manager: leaving it kills the copy.

    ``zombie``: the copy's process id as the target sees it, if the target must wait for it (``reap``), else 0.
    ``origin``: the memory map of the program when it was copied.
    ``confined``: its code is not trusted, so that it may not make even harmless system calls; its copies are alike.
    ``given_up``: called now and then while the copy runs; if it returns True, the run ends as a timeout.
    ``spent``: processor seconds of all copies that were killed so far.
    """

    spent = 0.0

    def __init__(self, tracee: Tracee, zombie: int, origin: tuple[Mapping, ...]) -> None:
        self.tracee = tracee
        self.zombie = zombie
        self.origin = origin
        self.confined = False
        self.given_up: Callable[[], bool] | None = None

    def __enter__(self) -> Shadow:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """The process id of the copy."""
        return self.tracee.pid

    def run_to(self, address: int, timeout_s: float, hits: int = 1) -> float:
        """Run until the ``hits``-th arrival at ``address``; the result is the processor seconds used.

        If the shadow stands at ``address`` already, that does not count. ``address`` must be the start of an
        instruction. ``timeout_s``: of the copy's processor time, so that a busy machine changes no result.
        On the way the copy may ask for the time, and write(2) seems to succeed but writes nothing: programs print how
        far they are. Any other system call stops it. Raises ``ShadowStopped``.
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
        """Run to the first of ``addresses`` that is reached, as ``run_to`` does. It must stand at none of them."""
        before = self._processor_time()
        try:
            self._arrive(addresses, before + timeout_s)
        except TargetEnded as ended:
            raise ShadowStopped(End.ENDED) from ended
        return self._processor_time() - before

    def registers(self) -> Registers:
        """The registers of the copy."""
        return self.tracee.registers()

    def set_registers(self, registers: Registers) -> None:
        """Set the registers of the copy, outside any system call."""
        self.tracee.set_registers(registers.outside_call())

    def vector_state(self) -> bytes:
        """The extended state (x87, vector and mask registers, MXCSR), such that equal states have equal bytes."""
        raw = self.tracee.vector_state()
        start, end = _XSAVE_BOOKKEEPING
        return raw[:start] + bytes(end - start) + raw[end:]

    def read(self, address: int, size: int) -> bytes:
        """Read exactly ``size`` bytes of the copy; raises as ``Memory.read`` does."""
        return self.tracee.memory.read(address, size)

    def write(self, address: int, data: bytes) -> None:
        """Write to this copy only: also to its read-only and code pages, but never to memory that is still shared."""
        self.tracee.memory.write(address, data)

    patch = write

    def written_pages(self) -> tuple[tuple[int, int], ...]:
        """Intervals of the private pages written since the fork; a superset, see ``exclusive_pages``."""
        return exclusive_pages(self.pid, [(m.start, m.end) for m in _private(mappings(self.pid))])

    def maps(self) -> tuple[Mapping, ...]:
        """The memory map of the program when it was copied, with the stack as the copy has it by now. It tells which
        memory the program shares, where the copy has private memory, or none."""
        stack = next((m for m in mappings(self.pid) if m.path == "[stack]"), None)
        return tuple(stack if stack is not None and m.path == "[stack]" else m for m in self.origin)

    def rseq_area(self) -> tuple[int, int]:
        """The interval ``[start, end)`` of the rseq area: the kernel writes it when the thread changes processors."""
        address, size = ptrace.rseq_area(self.pid)
        return address, address + size

    def kill(self) -> None:
        """Kill the copy and wait for it. If ``zombie`` is set, the target must still ``reap`` it."""
        Shadow.spent += running_seconds(self.pid)
        try:
            os.kill(self.pid, signal.SIGKILL)
            while True:
                ptrace.wait(self.pid, 10.0)
        except (TargetEnded, WaitTimeout, ProcessLookupError):
            self.tracee.memory.close()

    def _processor_time(self) -> float:
        """The copy's processor seconds, page faults included; exact while it is stopped."""
        return running_seconds(self.pid) or time.monotonic()

    def _leave(self, address: int, limit: float) -> None:
        """Execute the instruction at ``address`` if the shadow stands there, and all its repetitions."""
        for _ in range(_STEPS):
            if self.registers().rip != address:
                return
            stop = self._go(ptrace.SYSEMU_SINGLESTEP, limit)
            if stop.signal != signal.SIGTRAP:
                raise self._stopped_by(stop)
        raise ShadowStopped(End.TIMEOUT, f"in a one-instruction loop at {address:#x}")

    def _arrive(self, addresses: Collection[int], limit: float) -> None:
        """Run to the first of ``addresses``, by breakpoints, which are removed again."""
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
        """Resume the copy until a signal or a system call stops it, other than SIGSTOP and the calls that it may make.

        Raises ``ShadowStopped(TIMEOUT)`` when its processor time reaches ``limit``; the copy is then stopped.
        """
        calls = 0
        while True:
            self.tracee.go(how, self.pid)
            try:
                stop = self._wait(limit)
            except WaitTimeout as error:
                self.tracee.stop(10.0)
                raise ShadowStopped(End.TIMEOUT, f"at {self.registers().rip:#x}") from error
            # A confined copy may call by ``int 0x80``, where the same number is another call.
            may_call = calls < _MOST_CALLS and not self.confined
            call = self.registers().orig_rax if stop.kind is StopKind.SYSCALL and may_call else None
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
        """Wait for the next stop. Raises ``WaitTimeout`` if the copy's processor time has reached ``limit``, if
        ``given_up`` says so, or if it has got no processor for long."""
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
        """Execute a system call that changes nothing but the calling thread.

        rt_sigreturn is one: the program is often forked inside a signal handler, because often a signal is what stops
        a program while memopt attaches to it.
        """
        registers = self.registers()
        self.set_registers(replace(registers, rip=registers.rip - _SYSCALL_BYTES, rax=call))
        for _ in ("exit of the call that was not made", "entry of the same call, made now", "exit"):
            self.tracee.go(ptrace.SYSCALL, self.pid)
            self.tracee.wait(self.pid, _SETTLE_S)
        if call == _SYS_RT_SIGRETURN:
            self.tracee.set_signal_mask(remote_calls.ALL_SIGNALS)  # rt_sigreturn has restored the program's mask

    def _stopped_by(self, stop: Stop) -> ShadowStopped:
        registers = self.registers()
        if stop.kind is StopKind.SYSCALL:
            return ShadowStopped(End.SYSTEM_CALL, f"number {registers.orig_rax} at {registers.rip - 2:#x}")
        fault = ptrace.get_fault_address(self.pid) if stop.signal in (signal.SIGSEGV, signal.SIGBUS) else None
        return ShadowStopped(End.SIGNAL, f"{signal.Signals(stop.signal).name} at {registers.rip:#x}", fault)


def compare(first: Shadow, second: Shadow, ignore: Sequence[tuple[int, int]] = (), limit: int = 16
            ) -> tuple[Difference, ...]:
    """Find where the private memory of two shadows differs: at most ``limit`` words of 8 bytes.

    ``ignore``: intervals that are not compared; nor are the rseq areas, which the kernel writes. Precondition: both
    shadows were forked in the same stop of the target. So only pages that one of them, or the target, has written since
    can differ, and only these are read.
    """
    ignored = (*ignore, first.rseq_area(), second.rseq_area())
    differences: list[Difference] = []
    pages = _union((*first.written_pages(), *second.written_pages()))
    for start, end in _chunks(pages):
        try:
            ours, theirs = first.read(start, end - start), second.read(start, end - start)
        except Rejected:  # mapped in one copy only, whose stack has grown
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
    """The intervals in pieces of at most ``_CHUNK`` bytes, of which two fit into memory easily."""
    for start, end in intervals:
        for piece in range(start, end, _CHUNK):
            yield piece, min(piece + _CHUNK, end)


