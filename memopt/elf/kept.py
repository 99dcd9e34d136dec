"""What was found out about files, kept between runs in a directory of the user's own.

Example: the first profile of a program that uses libc translates some hundred functions of libc. The next one reads the
translations.

In: a kind of finding, all that it depends on, the finding. Out: the finding of an earlier run, or None.

Invariant: nothing is read that another user may have written, that another version of memopt has found, or that belongs
to other bytes. The directory and its files belong to the user and nobody else may read or write them. A file's name is
the hash of all that its content depends on, memopt's own sources included. In any doubt, nothing is read.

The content is a pickle (it holds many small values of ours), which runs code of whoever wrote it. Hence the checks.
"""

from __future__ import annotations

import functools
import hashlib
import os
import pickle
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_NAME = "memopt"
_MOST_BYTES = 400 << 20  # of all files; the oldest ones go first
_DIGEST_BYTES = 32
_OWN_PACKAGES = ("memopt", "runtime")


def load(kind: str, *depends_on: object) -> object | None:
    """The finding that ``store`` has kept; None if there is none, or in any doubt."""
    with suppress(OSError, ValueError, EOFError, AttributeError, ImportError, IndexError, TypeError,
                  pickle.UnpicklingError), _directory(make=False) as directory:
        if directory is None:
            return None
        descriptor = os.open(_file(kind, depends_on), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        with os.fdopen(descriptor, "rb") as file:
            if not _is_own(os.fstat(descriptor), stat.S_ISREG):
                return None
            digest, content = file.read(_DIGEST_BYTES), file.read()
        if hashlib.sha256(content).digest() == digest:
            found: object = pickle.loads(content)
            return found
    return None


def store(finding: object, kind: str, *depends_on: object) -> None:
    """Keeps a finding. Does nothing if there is no place that is private."""
    with suppress(OSError, pickle.PicklingError, AttributeError, TypeError), _directory(make=True) as directory:
        if directory is None:
            return
        content, name = pickle.dumps(finding, pickle.HIGHEST_PROTOCOL), _file(kind, depends_on)
        _make_room(directory, len(content))
        beside = f"{name}.{os.getpid()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(beside, flags, 0o600, dir_fd=directory), "wb") as file:
            file.write(hashlib.sha256(content).digest() + content)
        os.replace(beside, name, src_dir_fd=directory, dst_dir_fd=directory)


@contextmanager
def _directory(*, make: bool) -> Iterator[int | None]:
    """The directory for what this version of memopt finds, opened; None if it is not there or not private."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        home = os.environ.get("HOME", "")
        base = os.path.join(home, ".cache") if os.path.isabs(home) else ""
    opened: list[int] = []
    try:
        if base and make and not os.path.isdir(base):
            os.mkdir(base, 0o700)
        found: int | None = None
        if base:
            opened.append(os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            for name in (_NAME, _version()):
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(name, 0o700, dir_fd=opened[-1])
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                opened.append(os.open(name, flags, dir_fd=opened[-1]))
                if not _is_own(os.fstat(opened[-1]), stat.S_ISDIR):
                    break
            else:
                found = opened[-1]
        yield found
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _is_own(found: os.stat_result, is_kind: Callable[[int], bool]) -> bool:
    """Whether a file or directory is the user's, and nobody else's to read or write."""
    return is_kind(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _file(kind: str, depends_on: tuple[object, ...]) -> str:
    return f"{kind}-{hashlib.sha256(repr(depends_on).encode('utf-8', 'surrogateescape')).hexdigest()}"


@functools.cache
def _version() -> str:
    """Tells versions of memopt apart: by its sources, by Python, and by the packages that are installed."""
    root, known = Path(__file__).resolve().parents[2], hashlib.sha256(sys.version.encode())
    for folder in sys.path:
        with suppress(OSError):
            known.update("\0".join(sorted(n for n in os.listdir(folder) if n.endswith(".dist-info"))).encode())
    for package in _OWN_PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            known.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return known.hexdigest()[:32]


def _make_room(directory: int, size: int) -> None:
    """Removes the oldest files if there would be too much with ``size`` bytes more."""
    files = sorted((entry.stat(follow_symlinks=False).st_mtime, entry.stat(follow_symlinks=False).st_size, entry.name)
                   for entry in os.scandir(directory))
    total = size + sum(of for _, of, _ in files)
    for _, of, name in files:
        if total <= _MOST_BYTES:
            return
        with suppress(OSError):
            os.unlink(name, dir_fd=directory)
        total -= of
