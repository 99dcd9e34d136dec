"""Start the program as its own shell would have: nothing it can see tells that memopt stands above it, but its parent.

Invariant: the program gets memopt's initial environment byte for byte, memopt's inherited descriptors, signal
dispositions, mask, limits, affinity, priority and directory unchanged, and no tracer: set-uid works. It does not
depend on memopt: when memopt is killed at any step, before execve included, the program runs on.

What is imported before the program runs delays it: nothing slow here, no dataclasses; the supervisor comes after.

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
from runtime.launch.identify import Executable, exec_failure
from runtime.launch.signals import SignalState

TYPE_CHECKING = False  # as in typing, which takes five milliseconds to import
if TYPE_CHECKING:
    from typing import NoReturn

    from runtime.launch.jobcontrol import Supervisor

_libc = ctypes.CDLL(None, use_errno=True)
_EXEC_FAILED = 127
_EXEC_CHECK_MS = 20

_child: tuple[int, SignalState] | None = None
_supervised: Supervisor | None = None


class Target:
    """The program that was started. ``started``: seconds on the monotonic clock, just before it began."""

    __slots__ = ("arguments", "executable", "pid", "started")

    def __init__(self, pid: int, executable: Executable, arguments: tuple[str, ...], started: float) -> None:
        self.pid, self.executable, self.arguments, self.started = pid, executable, arguments, started

    @property
    def supervisor(self) -> Supervisor:
        found = supervised()
        assert found is not None
        return found


def launch(executable: Executable, arguments: Sequence[str], *, environment: Sequence[bytes] | None = None,
           prepare: Callable[[int], object] | None = None) -> Target:
    """Fork and execve ``executable`` with ``arguments`` (argv[0] included); returns once execve has succeeded.

    ``environment`` holds ``NAME=value`` entries, by default the one memopt was started with. ``prepare`` is called
    with the process id before execve (a perf event with enable_on_exec goes there). From here on every signal of
    memopt is blocked and taken by the supervisor. Raises ``CannotRun`` when the kernel refuses the file, OSError
    when there is no process to be had; main thread only.
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
        if prepare is not None:
            prepare(pid)
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
    return Target(pid, executable, tuple(arguments), started)


def replace(executable: Executable, arguments: Sequence[str]) -> NoReturn:
    """Become the program instead of standing above it: for what memopt cannot help, or cannot even fork for.

    Raises ``CannotRun`` when execve fails. Signals must not be held.
    """
    image = _Image(executable, arguments, None)
    signals = SignalState.hold()
    signals.give_to_program()
    raise exec_failure(executable, image.execve())


def supervised() -> Supervisor | None:
    """The program this process has started, if any: whatever fails later must still wait for it."""
    global _supervised
    if _supervised is None and _child is not None:
        from runtime.launch.jobcontrol import Supervisor

        _supervised = Supervisor(*_child)
    return _supervised


def release_inherited_files() -> None:
    """Let go of memopt's copies of what it inherited for the program, standard error apart.

    Otherwise a pipe that the program closes early would stay open until memopt ends. What memopt opened itself is
    close-on-exec, what it inherited cannot be: that tells them apart. Numbers 0 and 1 are kept occupied.
    """
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        with contextlib.suppress(OSError):  # the listing's own descriptor is gone by now
            if descriptor == 2 or fcntl.fcntl(descriptor, fcntl.F_GETFD) & fcntl.FD_CLOEXEC:
                continue
            if descriptor < 2:
                os.dup2(null, descriptor)
            else:
                os.close(descriptor)
    if null > 2:
        os.close(null)


def initial_environment() -> tuple[bytes, ...]:
    """The environment memopt was started with: Python may have added to its own copy, but not to this one."""
    try:
        with open("/proc/self/environ", "rb") as file:
            block = file.read()
    except OSError:
        return tuple(name + b"=" + value for name, value in os.environb.items())
    return tuple(block.split(b"\0")[:-1])


class _Image:
    """The arguments of execve, made ready before the fork."""

    def __init__(self, executable: Executable, arguments: Sequence[str], environment: Sequence[bytes] | None) -> None:
        self._path = os.fsencode(executable.path)
        self._arguments = _strings([os.fsencode(argument) for argument in arguments])
        self._environment = _strings(initial_environment() if environment is None else environment)

    def execve(self) -> int:
        """Returns only on failure, with errno."""
        _libc.execve(self._path, self._arguments, self._environment)
        return ctypes.get_errno()


def _strings(items: Sequence[bytes]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * (len(items) + 1))(*items, None)


def _pipe(stack: contextlib.ExitStack) -> tuple[io.FileIO, io.FileIO]:
    """Reading and writing end, close-on-exec; both are closed when ``stack`` is left."""
    read, write = os.pipe()
    return stack.enter_context(io.FileIO(read, "r")), stack.enter_context(io.FileIO(write, "w"))


def _await_execve(error_read: io.FileIO) -> bytes:
    """Empty when execve succeeded (or a signal ended the child first), else its errno as four bytes.

    Ctrl-Z may stop the child before execve: memopt must then stop too, so it does not just wait for the pipe. What
    stopped it for a tracer, execve for the most part, is the tracer's: the child goes on when it has answered.
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
    """In the child: wait for the word of the parent, or its end, and execve. Never returns, never raises."""
    try:
        go_write.close()
        go_read.read(1)
        signals.give_to_program()
        error_write.write(struct.pack("<i", image.execve()))
    finally:
        os._exit(_EXEC_FAILED)
