"""The worker thread: it does one job at a time, beside the main thread, which looks after the program.

Example: ``worker.start(lambda: improver.improve(0x401150))`` returns at once. When the program ends before the job, the
main thread gives the job up instead of waiting for it.

With --follow there is a worker for each process. Jobs of different workers run one after the other: the assembler and
other libraries that they use are not made for two threads. A job lets others go first while it only waits.
"""

from __future__ import annotations

import ctypes
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_TURN = threading.Lock()  # held by the worker whose job runs


@contextmanager
def others_first() -> Iterator[None]:
    """A context in which the jobs of other workers may run. To be entered in a job."""
    _TURN.release()
    try:
        yield
    finally:
        _TURN.acquire()


class Worker:
    """One thread. It is made before the main thread lowers its own priority, which new threads inherit."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._busy = False
        self._thread = threading.Thread(target=self._serve, daemon=True, name="improver")
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether a job is waiting or running."""
        return self._busy

    def start(self, job: Callable[[], None]) -> None:
        """Run ``job`` in the thread. Precondition: not ``busy``."""
        self._busy = True
        self._jobs.put(job)

    def give_up(self) -> None:
        """Abort the job by an exception (``SystemExit``) at its next bytecode: its result is not needed any more.

        The thread may be in the middle of an import then: no other thread may import the same module afterwards."""
        if self._busy and self._thread.ident is not None:
            sys.unraisablehook = _unless_given_up
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread.ident),
                                                       ctypes.py_object(SystemExit))

    def _serve(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                with _TURN:
                    job()
            finally:
                self._busy = False


def _unless_given_up(report: sys.UnraisableHookArgs) -> None:
    """Report an exception that cannot be raised (in a finaliser), unless it is the one that aborts a job."""
    if report.exc_type is not SystemExit:
        sys.__unraisablehook__(report)
