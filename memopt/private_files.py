"""Folders for files that memopt's parts load and execute: nobody but this user and root can write there.

Example: pyvex keeps a pickle of its C declarations in the folder for temporary files, under a name that everybody
knows, and loads whatever it finds there. Whoever may write to /tmp so runs code as memopt's user. memopt lets pyvex
see ``~/.cache/memopt`` in the place of that folder.

In: paths. Out: whether a folder can be trusted; a folder that can. What is found in a folder was put there by this user
only if no folder on the way to it could be exchanged by somebody else, and the folder itself was never open.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def trusted(path: str) -> bool:
    """Whether only this user and root can put files into the folder ``path``, or another folder in its place."""
    path = os.path.realpath(path)
    try:
        if not _ours(path) or os.lstat(path).st_mode & _OTHERS:
            return False
        while (parent := os.path.dirname(path)) != path:
            # In a sticky folder, as /tmp, only the owner can rename or remove what is there.
            mode = os.lstat(parent).st_mode
            if not _ours(parent) or (mode & _OTHERS and not mode & stat.S_ISVTX):
                return False
            path = parent
    except OSError:
        return False
    return True


def _ours(path: str) -> bool:
    status = os.lstat(path)
    return stat.S_ISDIR(status.st_mode) and status.st_uid in (0, os.geteuid())


def cache_folder(name: str) -> str | None:
    """The folder ``name`` in which memopt keeps files from run to run, made with mode 0700; None if there is none that
    can be trusted."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.expanduser("~/.cache")
    path = os.path.join(base, "memopt", name)
    try:
        for folder in (os.path.dirname(path), path):
            os.makedirs(folder, 0o700, exist_ok=True)
            status = os.lstat(folder)
            if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) != 0o700:
                return None
    except OSError:
        return None
    return path if trusted(path) else None


@contextmanager
def temporary_files_in(name: str) -> Iterator[str]:
    """A context in which ``tempfile`` uses the folder ``cache_folder(name)``; where there is none, a new one that is
    gone afterwards."""
    kept = cache_folder(name)
    folder, before = kept or tempfile.mkdtemp(prefix="memopt-"), tempfile.tempdir
    tempfile.tempdir = folder
    try:
        yield folder
    finally:
        tempfile.tempdir = before
        if kept is None:
            shutil.rmtree(folder, ignore_errors=True)
