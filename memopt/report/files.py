"""Writing a report to the file its user named: whole or not at all, and never through somebody else's link."""

from __future__ import annotations

import contextlib
import os
import stat


class ReportError(Exception):
    """The file could not be written; the message is one line for the user."""


def write(path: str, text: str) -> None:
    """Replaces the file at ``path`` by ``text`` in one step; a device or pipe is written to as it is.

    Raises ``ReportError``.
    """
    try:
        if _is_special(path):
            _write_through(path, text)
        else:
            _replace(os.path.realpath(path), text)
    except OSError as error:
        raise ReportError(f"cannot write {path}: {error.strerror or error}") from error


def _is_special(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return False
    return not stat.S_ISREG(mode)


def _write_through(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8", errors="backslashreplace") as stream:
        stream.write(text)


def _replace(path: str, text: str) -> None:
    """Written beside ``path`` under a name nobody else has, then renamed over it."""
    beside = f"{path}.{os.getpid()}.part"
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text)
        os.replace(beside, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
