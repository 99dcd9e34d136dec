"""Writes a report to the file that the user named, atomically.

The text is written to a temporary file beside it, which is then renamed. So the file holds the old text or the new
text, never a part, and nothing is written through a symbolic link that another user placed under the temporary name.
Devices and pipes are opened and written to.
"""

from __future__ import annotations

import contextlib
import os
import stat


class ReportError(Exception):
    """The file could not be written. The message is one line for the user."""


def write(path: str, text: str) -> None:
    """Replaces the contents of the file at ``path`` by ``text``, atomically; writes to a device or pipe in place.

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
    """Writes a new file beside ``path`` and renames it to ``path``. The new file must not exist (O_EXCL)."""
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
