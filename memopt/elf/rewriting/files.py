"""Puts a file in the place of another one, all at once.

In: a path and the new bytes. Out: the file. After a full disk, an error or a kill there is the old file or the new one,
never a part. The bytes are written to a file without a name, where the file system has such files, so that nothing is
left over. Set-uid and set-gid bits and extended attributes are not taken over.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat


def replace_file(path: str, content: bytes, mode_of: str) -> None:
    """Writes ``content`` to ``path``, with the permissions of the file ``mode_of``. Raises ``OSError``.

    A symbolic link at ``path`` is replaced, not followed. ``path`` must not be ``mode_of`` itself: the input of a
    rewriting is never touched.
    """
    folder, name = os.path.split(os.path.abspath(path))
    if os.path.exists(path) and os.path.samefile(path, mode_of):
        raise FileExistsError(0, "it is the input itself; name another file")
    if os.path.isdir(path):
        raise IsADirectoryError(0, "it is a folder; name a file")
    mode = stat.S_IMODE(os.stat(mode_of).st_mode) & 0o777
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        beside = _written_beside(directory, folder, content, mode)
        try:
            os.replace(beside, name, src_dir_fd=directory, dst_dir_fd=directory)
        except OSError:
            os.unlink(beside, dir_fd=directory)
            raise
        os.fsync(directory)
    finally:
        os.close(directory)


def _written_beside(directory: int, folder: str, content: bytes, mode: int) -> str:
    """Writes a new file into the folder, durably; returns its name."""
    beside = f".memopt.{secrets.token_hex(8)}"
    try:
        descriptor = os.open(folder, os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC, 0o600)
    except OSError:  # the file system has no files without a name
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor, named = os.open(beside, flags, 0o600, dir_fd=directory), True
    else:
        named = False
    try:
        _fill(descriptor, content, mode)
        if not named:
            os.link(f"/proc/self/fd/{descriptor}", beside, dst_dir_fd=directory, follow_symlinks=True)
    except OSError:
        if named:
            with contextlib.suppress(OSError):
                os.unlink(beside, dir_fd=directory)
        raise
    finally:
        os.close(descriptor)
    return beside


def _fill(descriptor: int, content: bytes, mode: int) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left):]
    os.fchmod(descriptor, mode)
    os.fsync(descriptor)
