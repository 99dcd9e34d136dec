"""The folder of the cache, ``$XDG_CACHE_HOME/memopt/plans/v1``: reads, merges and writes the files in it.

In: names and values. Out: values, or ``OddFile``. What is read is a regular file of this user that nobody else may
write, no link, of at most ``MOST_BYTES``. What is written appears at once (a temporary file is renamed), merged with
what is there by then; of two runs that write in the same moment the last one counts. A folder that cannot be used (no
home, read-only, full, open to others) is as if there were no cache: nothing is said.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from memopt.plans.entries import MOST_BYTES, Entry, OddFile, Stored, merged, parse, text
from memopt.plans.identity import FileIdentity
from memopt.private_files import cache_folder

MOST_FILES, MOST_ALTOGETHER = 256, 16 << 20
_DAY, _HOUR = 86400.0, 3600.0
_NAME = frozenset("0123456789abcdef")


def plans_folder(*, make: bool = True) -> str | None:
    """The folder; None where there is none that can be trusted. ``make``: it is made if need be."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        base = os.environ.get("HOME", "")
        if not os.path.isabs(base):
            return None
        base = os.path.join(base, ".cache")
    path = os.path.join(base, "memopt", "plans", "v1")
    return cache_folder(os.path.join("plans", "v1")) if make or os.path.isdir(path) else None


def load(folder: str, name: str) -> Stored | None:
    """What the file ``name`` holds; None where there is none. Raises ``OddFile``."""
    path = os.path.join(folder, name)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OddFile("it is a link" if os.path.islink(path) else error.strerror or "it cannot be read") from None
    try:
        _check(os.fstat(descriptor))
        content = b""
        while len(content) <= MOST_BYTES and (more := os.read(descriptor, MOST_BYTES + 1 - len(content))):
            content += more
    except OSError as error:
        raise OddFile(error.strerror or "it cannot be read") from None
    finally:
        os.close(descriptor)
    if len(content) > MOST_BYTES:
        raise OddFile("it is too large")
    return parse(content.decode("utf-8", "surrogateescape"))


def _check(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OddFile("it is no regular file")
    if status.st_uid != os.geteuid():
        raise OddFile("it belongs to somebody else")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise OddFile("others may write to it")


def touch(folder: str, name: str) -> None:
    """Note that the file is in use: those that were used least recently go first."""
    with suppress(OSError):
        path = os.path.join(folder, name)
        if time.time() - os.lstat(path).st_mtime > _DAY:
            os.utime(path, follow_symlinks=False)


def remove(folder: str, name: str) -> None:
    """Remove a file, or a link in its place, if it is there."""
    with suppress(OSError):
        os.unlink(os.path.join(folder, name))


def add(folder: str, name: str, origin: tuple[str, ...], file: FileIdentity, found: tuple[Entry, ...]) -> None:
    """Merge the entries ``found`` into the file ``name``. Entries of another origin are dropped."""
    known: Stored | None = None
    with suppress(OddFile):
        known = load(folder, name)
    before = known.entries if known is not None and (known.origin, known.file) == (origin, file) else ()
    content = text(Stored(origin, file, merged(before, found))).encode("utf-8", "backslashreplace")
    path, beside = os.path.join(folder, name), os.path.join(folder, f"{name}.{os.getpid()}")
    with suppress(OSError):
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(beside, flags, 0o600), "wb") as opened:
                opened.write(content)
            os.replace(beside, path)
        except OSError:
            remove(folder, os.path.basename(beside))
            raise
        _make_room(folder)


def names(folder: str) -> tuple[str, ...]:
    """The names of all files of plans, those used last first."""
    return tuple(name for _, _, name in sorted(_files(folder, _is_name), reverse=True))


def _is_name(name: str) -> bool:
    return len(name) == 32 and set(name) <= _NAME


def _files(folder: str, wanted: Callable[[str], bool]) -> Iterator[tuple[float, int, str]]:
    with suppress(OSError), os.scandir(folder) as found:
        for each in found:
            if wanted(each.name):
                with suppress(OSError):
                    status = each.stat(follow_symlinks=False)
                    yield status.st_mtime, status.st_size, each.name


def _make_room(folder: str) -> None:
    """Remove the files that were used least recently if there are too many, and what a killed memopt has left."""
    total = 0
    for number, (_, size, name) in enumerate(sorted(_files(folder, _is_name), reverse=True)):
        total += size
        if number >= MOST_FILES or total > MOST_ALTOGETHER:
            remove(folder, name)
    for written, _, name in list(_files(folder, lambda name: not _is_name(name))):
        if written < time.time() - _HOUR:
            remove(folder, name)
