"""Messages of memopt to the user: whole lines on standard error with the prefix ``memopt: ``, and a line of progress.

Invariant: writing a message never raises, and never writes to a descriptor other than the user's standard error.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress

PREFIX = "memopt: "
_STANDARD_ERROR = 2
_START_OF_LINE = "\r\x1b[K"  # goes to the start of the line and erases the line (ECMA-48: EL)


def say(text: str) -> None:
    """Writes every line of ``text`` with the prefix, in one write, so that no output of the program comes between.

    Python sets ``sys.stderr`` to None if descriptor 2 was closed at the start. Another file of memopt may have that
    number by now, so nothing is written then. Errors of the write (a full disk, a closed pipe) are ignored.
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
    """A line of progress on the user's terminal, rewritten in place. ``say`` erases it before it writes a message.

    There is none if standard error is no terminal, or if standard output is one: the line would tear the program's
    output apart.
    """

    shown = False  # the line stands on the terminal now

    def __init__(self, wanted: bool) -> None:
        self.wanted = wanted and sys.stderr is not None and os.isatty(_STANDARD_ERROR) and not os.isatty(1)
        self._began = time.monotonic()

    def show(self, text: str) -> None:
        """Replaces the line by the seconds since this object was made, followed by ``text``."""
        if self.wanted:
            Progress.shown = True
            _write(f"{_START_OF_LINE}{PREFIX}{time.monotonic() - self._began:.0f} s, {text}")

    def clear(self) -> None:
        """Erases the line."""
        if Progress.shown:
            Progress.shown = False
            _write(_START_OF_LINE)


def _write(text: str) -> None:
    with suppress(OSError):
        os.write(_STANDARD_ERROR, text.encode("utf-8", "backslashreplace"))


def say_internal(stage: str, error: BaseException) -> None:
    """Writes the one line for a failure of memopt itself in ``stage``."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    say(f"internal error in {stage}: {text}; the program runs on natively")
