"""memopt's own words: whole lines on standard error with the ``memopt: `` prefix.

Invariant: saying something never fails and never writes to a descriptor that is not the user's standard error.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress

PREFIX = "memopt: "
_STANDARD_ERROR = 2
_START_OF_LINE = "\r\x1b[K"  # and nothing in it (ECMA-48: EL)


def say(text: str) -> None:
    """Write every line of ``text`` with the prefix, in one write (lines of the program do not mix in).

    Python leaves ``sys.stderr`` None when descriptor 2 was closed at the start; the number may since belong to a
    file of memopt's own, so nothing is written then. A full disk or a closed pipe is not memopt's to report.
    """
    if sys.stderr is None:
        return
    lines = "".join(f"{PREFIX}{line}\n" for line in text.splitlines())
    if Progress.shown:
        lines, Progress.shown = _START_OF_LINE + lines, False
    data = lines.encode("utf-8", "backslashreplace")
    try:
        while data:
            data = data[os.write(_STANDARD_ERROR, data):]
    except OSError:
        return


class Progress:
    """A line on the user's terminal that changes, and goes before anything is said. None appears where standard error
    is no terminal, or where the program writes to a terminal itself, whose output would be torn. ``shown``: it is
    there."""

    shown = False

    def __init__(self, wanted: bool) -> None:
        self.wanted = wanted and sys.stderr is not None and os.isatty(_STANDARD_ERROR) and not os.isatty(1)
        self._began = time.monotonic()

    def show(self, text: str) -> None:
        """Behind the seconds since the beginning."""
        if self.wanted:
            Progress.shown = True
            _write(f"{_START_OF_LINE}{PREFIX}{time.monotonic() - self._began:.0f} s, {text}")

    def clear(self) -> None:
        if Progress.shown:
            Progress.shown = False
            _write(_START_OF_LINE)


def _write(text: str) -> None:
    with suppress(OSError):
        os.write(_STANDARD_ERROR, text.encode("utf-8", "backslashreplace"))


def say_internal(stage: str, error: BaseException) -> None:
    """The one line for a failure of memopt's own in ``stage``."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    say(f"internal error in {stage}: {text}; the program runs on natively")
