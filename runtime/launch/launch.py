"""Starts the program by fork and execve, as its own shell would have; only its parent process tells it of memopt.

In: an ``Executable``, the arguments, optionally an environment. Out: a ``Target``, whose program has passed execve.
Raises ``CannotRun`` if execve fails.

Invariant: the program gets memopt's initial environment byte for byte, and memopt's inherited descriptors, signal
dispositions, mask, limits, affinity, priority and directory unchanged. It has no tracer, so that set-uid works. It does
not depend on memopt: if memopt is killed at any step, even before execve, the program runs on.

This module is imported before the program starts and so delays it: it imports nothing slow, and no dataclasses. The
supervisor (runtime/launch/jobcontrol.py) is imported afterwards.

Sources: execve(2), environ(7), fork(2), PEP 538 (Python changes its own environment).
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import io
import os
import select
import struct
import time
from collections.abc import Callable, Sequence

from runtime import faults
from runtime.launch import limits
from runtime.launch.identify import Executable, exec_failure
from runtime.launch.signals import SignalState

TYPE_CHECKING = False  # as in typing, which takes five milliseconds to import
if TYPE_CHECKING:
    from typing import NoReturn, TypeVar

    from runtime.launch.jobcontrol import Supervisor

    T = TypeVar("T")

_libc = ctypes.CDLL(None, use_errno=True)
_EXEC_FAILED = 127
_EXEC_CHECK_MS = 20

_child: tuple[int, SignalState] | None = None
_supervised: Supervisor | None = None


class Target:
    """The started program. ``arguments``: argv, argv[0] included. ``started``: seconds on the monotonic clock, just
    before the program began."""

    __slots__ = ("arguments", "executable", "pid", "started")

    def __init__(self, pid: int, executable: Executable, arguments: tuple[str, ...], started: float) -> None:
        self.pid, self.executable, self.arguments, self.started = pid, executable, arguments, started

    @property
    def supervisor(self) -> Supervisor:
        """The supervisor of the program; see ``supervised``."""
        found = supervised()
        assert found is not None
        return found


def launch(executable: Executable, arguments: Sequence[str], *, environment: Sequence[bytes] | None = None) -> Target:
    """``launch_prepared`` without a preparation: start the program; returns once execve has succeeded."""
    return launch_prepared(executable, arguments, lambda _: None, environment=environment)[0]


def launch_prepared(executable: Executable, arguments: Sequence[str], prepare: Callable[[int], T], *,
                    environment: Sequence[bytes] | None = None) -> tuple[Target, T]:
    """Fork and execve ``executable`` with ``arguments`` (argv[0] included); returns once execve has succeeded.

    ``prepare`` is called with the process id before execve, for instance to open a perf event with enable_on_exec; its
    result is the second one. ``environment``: ``NAME=value`` entries, by default those that memopt was started with.
    From here on every signal of memopt is blocked, and the supervisor takes it. Call this from the main thread. Raises
    ``CannotRun`` if the kernel refuses the file, OSError if no process can be made.
    """
    global _child, _supervised
    image = _Image(executable, arguments, environment)
    with contextlib.ExitStack() as stack:
        go_read, go_write = _pipe(stack)
        error_read, error_write = _pipe(stack)
        signals = SignalState.hold()
        try:
            pid = os.fork()
        except OSError:
            signals.release()
            raise
        if pid == 0:
            _become_program(image, signals, go_read, go_write, error_write)
        _child, _supervised = (pid, signals), None
        faults.point("launch")
        go_read.close()
        error_write.close()
        prepared = prepare(pid)
        started = time.monotonic()
        go_write.close()
        failure = _await_execve(error_read)
    if failure:
        from runtime.launch.jobcontrol import wait_to_end

        supervisor = supervised()
        assert supervisor is not None
        _child = _supervised = None
        wait_to_end(supervisor)
        supervisor.close()
        raise exec_failure(executable, *struct.unpack("<i", failure))
    return Target(pid, executable, tuple(arguments), started), prepared


def replace(executable: Executable, arguments: Sequence[str]) -> NoReturn:
    """Execve ``executable`` in memopt's own process, which thereby becomes the program.

    For programs that memopt cannot help, and for a machine on which fork fails. Precondition: signals are not held.
    Raises ``CannotRun`` if execve fails.
    """
    image = _Image(executable, arguments, None)
    signals = SignalState.hold()
    signals.give_to_program()
    limits.give_to_program()
    raise exec_failure(executable, image.execve())


def supervised() -> Supervisor | None:
    """The supervisor of the program that this process has started, None if it has started none.

    Whatever fails later in memopt, it must still wait for that program.
    """
    global _supervised
    if _supervised is None and _child is not None:
        from runtime.launch.jobcontrol import Supervisor

        _supervised = Supervisor(*_child)
    return _supervised


def release_inherited_files() -> None:
    """Close the descriptors that memopt inherited, except standard error; the program has copies of them.

    Otherwise a pipe that the program closes early would stay open until memopt ends. The close-on-exec flag tells the
    two kinds apart: descriptors that memopt opened have it, inherited ones cannot have it. Descriptors 0 and 1 are
    replaced by /dev/null, so that no file opened later gets these numbers.
    """
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        with contextlib.suppress(OSError):  # listdir's own descriptor is closed by now
            if descriptor == 2 or fcntl.fcntl(descriptor, fcntl.F_GETFD) & fcntl.FD_CLOEXEC:
                continue
            if descriptor < 2:
                os.dup2(null, descriptor)
            else:
                os.close(descriptor)
    if null > 2:
        os.close(null)


def initial_environment() -> tuple[bytes, ...]:
    """The ``NAME=value`` entries of the environment that memopt was started with.

    They are read from /proc, because Python changes os.environ at its start (PEP 538).
    """
    try:
        with open("/proc/self/environ", "rb") as file:
            block = file.read()
    except OSError:
        return tuple(name + b"=" + value for name, value in os.environb.items())
    return tuple(block.split(b"\0")[:-1])


class _Image:
    """The arguments of execve, converted before the fork, so that the child allocates nothing for them."""

    def __init__(self, executable: Executable, arguments: Sequence[str], environment: Sequence[bytes] | None) -> None:
        self._path = os.fsencode(executable.path)
        self._arguments = _strings([os.fsencode(argument) for argument in arguments])
        self._environment = _strings(initial_environment() if environment is None else environment)

    def execve(self) -> int:
        """Call execve; it returns only on failure, and then the result is errno."""
        _libc.execve(self._path, self._arguments, self._environment)
        return ctypes.get_errno()


def _strings(items: Sequence[bytes]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * (len(items) + 1))(*items, None)


def _pipe(stack: contextlib.ExitStack) -> tuple[io.FileIO, io.FileIO]:
    """The reading and the writing end of a new pipe, close-on-exec; leaving ``stack`` closes both."""
    read, write = os.pipe()
    return stack.enter_context(io.FileIO(read, "r")), stack.enter_context(io.FileIO(write, "w"))


def _await_execve(error_read: io.FileIO) -> bytes:
    """Wait until the child has called execve: empty if that succeeded or a signal ended the child first, else errno as
    four bytes.

    Ctrl-Z may stop the child before execve. memopt must then stop too, so it polls the supervisor besides the pipe.
    If the child is traced (``prepare`` attached a tracer), its stops, mostly the one at execve, belong to the tracer:
    they are kept in ``unanswered``, and this returns at once, because the child goes on only when the tracer answers.
    """
    waiter = select.poll()
    waiter.register(error_read, select.POLLIN)
    while not waiter.poll(_EXEC_CHECK_MS):
        supervisor = supervised()
        assert supervisor is not None
        events = supervisor.poll(0)
        if supervisor.traced and events:
            supervisor.unanswered = events
            if supervisor.outcome is None:
                return b""
    return error_read.read(4)


def _become_program(image: _Image, signals: SignalState, go_read: io.FileIO, go_write: io.FileIO,
                    error_write: io.FileIO) -> NoReturn:
    """In the child: wait until the parent closes its end of the pipe, or dies, then execve. Never returns or raises."""
    try:
        go_write.close()
        go_read.read(1)
        signals.give_to_program()
        limits.give_to_program()
        error_write.write(struct.pack("<i", image.execve()))
    finally:
        os._exit(_EXEC_FAILED)
