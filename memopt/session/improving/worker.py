"""A thread that does one job at a time, beside the one that looks after the program."""

from __future__ import annotations

import ctypes
import queue
import sys
import threading
from collections.abc import Callable


class Worker:
    """Made before the main thread lowers its priority: new threads would inherit that."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._busy = False
        self._thread = threading.Thread(target=self._serve, daemon=True, name="improver")
        self._thread.start()

    @property
    def busy(self) -> bool:
        return self._busy

    def start(self, job: Callable[[], None]) -> None:
        """Precondition: not ``busy``."""
        self._busy = True
        self._jobs.put(job)

    def give_up(self) -> None:
        """Leave the job where it is, at the next step of the interpreter: nobody waits for what it would come to.

        What the thread was importing then is not to be imported by others."""
        if self._busy and self._thread.ident is not None:
            sys.unraisablehook = _unless_given_up
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread.ident),
                                                       ctypes.py_object(SystemExit))

    def _serve(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                job()
            finally:
                self._busy = False


def _unless_given_up(report: sys.UnraisableHookArgs) -> None:
    """Said of an exception that came where none can be raised, but of the one by which a job is given up."""
    if report.exc_type is not SystemExit:
        sys.__unraisablehook__(report)
