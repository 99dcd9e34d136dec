"""Signal handlers: does the process repair faults in its SIGSEGV handler, or does that only report and end it? May any
handler leave the code that it interrupts suspended?

A handler that repairs faults (lazily mapped memory, garbage collectors) may be part of any access of a nest, so such a
process is refused. A handler that prints a message and ends the process changes nothing. Some libraries install one in
every program that uses them: the file that contains the handler tells theirs from the program's own.

CPython's handlers note the signal and return at once (Modules/signalmodule.c), as glibc's own do for 32 and 33. Any
other handler may switch to another task, or leave by longjmp.

In: a process id, or a stopped tracee. Raises ``Rejected(SIGSEGV_HANDLER)``.

Sources: libgfortran runtime/compile_options.c (backtrace_handler re-raises), Open MPI opal/util/stacktrace.c
(SA_RESETHAND), UCX ucs/debug/debug.c (ucs_error_signal_handler), R src/main/main.c (sigactionSegv ends the process,
except after a stack overflow, which it recognises by the address of the fault).
"""

from __future__ import annotations

import os
import signal

from memopt.ir.reasons import Reason, Rejected
from runtime.target import remote_calls
from runtime.target.memory import mapping_at, mappings
from runtime.target.remote_calls import Call
from runtime.target.tracee import Tracee, field_of, status_field

_TERMINAL = ("libgfortran.so", "libopen-pal.so", "libucs.so", "libR.so")
_RETURNING = ("libpython3", "python3")
_LIBC, _OF_LIBC = "libc.so.6", (32, 33)  # SIGCANCEL, SIGSETXID (nptl)
_BATCH = 4  # calls in one stub
_SYS_RT_SIGACTION, _SIGACTION_BYTES = 13, 32
_MASK_BYTES = 8


def _known(path: str) -> bool:
    return os.path.basename(path).startswith(_TERMINAL)


def _handles_sigsegv(caught: str) -> bool:
    """Whether SIGSEGV is among the caught signals; ``caught``: the field SigCgt of /proc/PID/status."""
    return bool(int(caught or "0", 16) >> (signal.SIGSEGV - 1) & 1)


def check_loaded(pid: int, status: list[str]) -> None:
    """Check a process without stopping it. ``status``: the lines of /proc/PID/status.

    Raises ``Rejected(SIGSEGV_HANDLER)`` if a handler is set and none of the known libraries is loaded.
    """
    if _handles_sigsegv(field_of(status, "SigCgt")) and not any(_known(m.path) for m in mappings(pid)):
        raise Rejected(Reason.SIGSEGV_HANDLER, f"process {pid}")


def check_handler(tracee: Tracee, buffer: int) -> None:
    """Ask the stopped process itself, by rt_sigaction(2), which handler it has.

    Raises ``Rejected(SIGSEGV_HANDLER)`` unless there is none, or it lies in a library whose handler ends the process.
    ``buffer``: the address of 32 writable bytes that belong to memopt in the process.
    """
    if not _handles_sigsegv(status_field(tracee.pid, "SigCgt")):
        return
    call = Call(_SYS_RT_SIGACTION, (int(signal.SIGSEGV), 0, buffer, _MASK_BYTES))
    remote_calls.check(remote_calls.run(tracee, [call])[0], "rt_sigaction")
    handler = tracee.memory.word(buffer)
    tracee.memory.write(buffer, bytes(_SIGACTION_BYTES))
    place = mapping_at(mappings(tracee.pid), handler)
    if place is None or not _known(place.path):
        where = "unmapped memory" if place is None else place.path or "memory without a file"
        raise Rejected(Reason.SIGSEGV_HANDLER, f"its handler is at {handler:#x} in {where}")


def may_suspend(tracee: Tracee, buffer: int) -> bool:
    """Whether the stopped process has a handler that may neither end it nor return at once.

    ``buffer``: the address of a page that belongs to memopt in the process. Raises ``Rejected``: SECCOMP and what else
    ``remote_calls.run`` raises.
    """
    caught = int(status_field(tracee.pid, "SigCgt") or "0", 16)
    numbers = [number for number in range(1, 65) if caught >> (number - 1) & 1]
    maps = mappings(tracee.pid)
    for start in range(0, len(numbers), _BATCH):
        batch = numbers[start:start + _BATCH]
        calls = [Call(_SYS_RT_SIGACTION, (number, 0, buffer + _SIGACTION_BYTES * index, _MASK_BYTES))
                 for index, number in enumerate(batch)]
        for result in remote_calls.run(tracee, calls):
            remote_calls.check(result, "rt_sigaction")
        handlers = [tracee.memory.word(buffer + _SIGACTION_BYTES * index) for index in range(len(batch))]
        tracee.memory.write(buffer, bytes(_SIGACTION_BYTES * len(batch)))
        for number, handler in zip(batch, handlers, strict=True):
            place = mapping_at(maps, handler)
            name = "" if place is None else os.path.basename(place.path)
            of_libc = number in _OF_LIBC and name == _LIBC
            if not (of_libc or name.startswith((*_TERMINAL, *_RETURNING))):
                return True
    return False
