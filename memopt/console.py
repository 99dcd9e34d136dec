"""memopt's own words: whole lines on standard error with the ``memopt: `` prefix.

Invariant: saying something never fails and never writes to a descriptor that is not the user's standard error.
"""

from __future__ import annotations

import os
import sys

PREFIX = "memopt: "
_STANDARD_ERROR = 2


def say(text: str) -> None:
    """Write every line of ``text`` with the prefix, in one write (lines of the program do not mix in).

    Python leaves ``sys.stderr`` None when descriptor 2 was closed at the start; the number may since belong to a
    file of memopt's own, so nothing is written then. A full disk or a closed pipe is not memopt's to report.
    """
    if sys.stderr is None:
        return
    lines = "".join(f"{PREFIX}{line}\n" for line in text.splitlines())
    data = lines.encode("utf-8", "backslashreplace")
    try:
        while data:
            data = data[os.write(_STANDARD_ERROR, data):]
    except OSError:
        return


def say_internal(stage: str, error: BaseException) -> None:
    """The one line for a failure of memopt's own in ``stage``."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    say(f"internal error in {stage}: {text}; the program runs on natively")
