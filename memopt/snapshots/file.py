"""The file of a snapshot: a tar archive, compressed by gzip, with ``manifest.json`` and ``pages.bin``.

Example: ``tar -xzf nest.snapshot`` gives both; the pages stand in ``pages.bin`` one after the other, in the order in
which the manifest lists them. The same snapshot gives the same bytes.

In: a path, a limit on the bytes of the pages. Out: the ``Snapshot``, or ``SnapshotError``. A file is read from its
beginning to its end in pieces, and no more than the limit is ever held; gzip's checksum covers all of it. It is written
beside and renamed, and only its owner may read it: it holds memory of a program.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import zlib
from contextlib import suppress

from memopt.snapshots.form import Snapshot, SnapshotError, manifest, page_sizes, parsed

MANIFEST, PAGES = "manifest.json", "pages.bin"
DEFAULT_LIMIT = 64 << 20  # bytes of pages
_MOST_MANIFEST = 8 << 20
_BLOCK = 512  # of a tar archive (POSIX pax, ustar interchange format)
_MOST_PADDING = 64 << 10  # zeros behind the last member


def write(path: str, snapshot: Snapshot) -> int:
    """Write ``snapshot`` to ``path``; the size of the file. Raises ``SnapshotError``."""
    packed = _packed(snapshot)
    path = os.path.realpath(path)
    beside = f"{path}.{os.getpid()}.part"
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with open(descriptor, "wb") as file:
                file.write(packed)
            os.replace(beside, path)
        except OSError:
            with suppress(OSError):
                os.unlink(beside)
            raise
    except OSError as error:
        raise SnapshotError(f"cannot write {path}: {error.strerror or error}; name another file") from error
    return len(packed)


def _packed(snapshot: Snapshot) -> bytes:
    packed = io.BytesIO()
    with (gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as file,
          tarfile.open(mode="w", fileobj=file, format=tarfile.USTAR_FORMAT) as archive):
        for name, content in ((MANIFEST, manifest(snapshot).encode()),
                              (PAGES, b"".join(p.content for p in snapshot.pages))):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o600
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def read(path: str, limit: int = DEFAULT_LIMIT) -> Snapshot:
    """The snapshot in the file ``path``, with at most ``limit`` bytes of pages. Raises ``SnapshotError``."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise SnapshotError("it is no regular file")
        with open(path, "rb") as opened, gzip.GzipFile(fileobj=opened) as file:
            found, size = page_sizes(_member(file, MANIFEST, _MOST_MANIFEST))
            if size > limit:
                raise SnapshotError(f"it holds {-(-size >> 20)} MiB of pages, more than the limit of {limit >> 20}; "
                                    f"--limit {-(-size >> 20)} permits it")
            content = _member(file, PAGES, size)
            if len(content) != size:
                raise SnapshotError("it has other pages than its manifest says")
            if any(file.read(_MOST_PADDING)) or file.read(1):
                raise SnapshotError("something stands behind its pages")
            return parsed(found, content)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SnapshotError("it is damaged, or no snapshot of memopt") from error
    except OSError as error:
        raise SnapshotError(error.strerror or str(error)) from error


def _member(file: gzip.GzipFile, name: str, most: int) -> bytes:
    """The next member of the archive, which must be the file ``name`` with at most ``most`` bytes."""
    header = file.read(_BLOCK)
    if header[:100].rstrip(b"\0") != name.encode() or header[156:157] not in (b"0", b"\0"):
        raise SnapshotError("it is no snapshot of memopt")
    try:
        size = int(header[124:136].rstrip(b"\0 "), 8)
    except ValueError as error:
        raise SnapshotError("it is no snapshot of memopt") from error
    if not 0 <= size <= most:
        raise SnapshotError(f"its {name} has {size} bytes, and {most} are the most")
    content = file.read(size)
    file.read(-size % _BLOCK)
    if len(content) != size:
        raise SnapshotError("it is not complete")
    return content
