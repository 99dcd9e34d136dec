"""``memopt inspect`` and ``memopt rewrite --undo``: what memopt did to a file, and the file without it.

Example: ``memopt inspect prog.opt --pid 4711`` shows the versions in the file, and how often the process has entered
each. In: paths, a process id. Out: an exit code; text on standard output, or a file. A mistake is one line. The process
is only read.
"""

from __future__ import annotations

import os
import struct
import sys

from memopt.console import say
from memopt.elf.image import ElfError, Image
from memopt.elf.rewriting.files import replace_file
from memopt.elf.rewriting.record import Record, record_of
from memopt.elf.rewriting.undo import patched, undone
from memopt.ir.reasons import Rejected
from memopt.report.rewritten import Counters, Inspection, as_json, lines
from runtime.target.memory import Mapping, Memory, mappings

_FAILED = 1


def inspect(path: str, pid: int | None, *, json: bool) -> int:
    """Shows the record of the rewritten file at ``path``, with the counters of process ``pid``."""
    try:
        with Image(path) as image:
            record = record_of(image)
            if record is None:
                raise ElfError("memopt has not rewritten it")
            found = Inspection(path, record, _patched(image, record), _whole(image),
                               () if pid is None else counters(image, record, path, pid))
    except (ElfError, OSError, Rejected) as error:
        return _failed(path, error)
    sys.stdout.write(as_json(found) if json else "".join(f"{line}\n" for line in lines(found)))
    if not json and sys.stdout.isatty():
        say(f"next: memopt rewrite --undo {path} -o FILE gives the original back")
    return 0


def undo(path: str, output: str) -> int:
    """Writes the original of the rewritten file at ``path`` to ``output``."""
    try:
        with Image(path) as image:
            result = undone(image.read(0, image.size))
    except (ElfError, OSError) as error:
        return _failed(path, error)
    try:
        replace_file(output, result.content, path)
    except OSError as error:
        return _failed(output, error)
    if result.whole:
        say(f"{output} is the original, byte for byte")
    else:
        say(f"{path} was changed since memopt rewrote it: in {output} the code is the original's, the file is not")
    return 0


def _failed(path: str, error: Exception) -> int:
    why = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    say(f"{path}: {why}")
    return _FAILED


def _patched(image: Image, record: Record) -> bool | None:
    try:
        return patched(image, record)
    except ElfError:
        return None


def _whole(image: Image) -> bool:
    try:
        return undone(image.read(0, image.size)).whole
    except ElfError:
        return False


def counters(image: Image, record: Record, path: str, pid: int) -> tuple[Counters, ...]:
    """The counters of each version of the rewritten file at ``path`` in process ``pid``.

    Raises ``ElfError`` where the process does not run the file, ``Rejected`` where it cannot be read."""
    place = next((m for m in mappings(pid) if m.executable and _is_of(m, path)), None)
    if place is None:
        raise ElfError(f"process {pid} does not run it")
    state = image.load_bias(place.start, place.offset) + record.state[0]
    memory = Memory(pid)
    try:
        return tuple(Counters(struct.unpack("<Q", memory.read(state + v.entries, 8))[0],
                              struct.unpack("<Q", memory.read(state + v.runs, 8))[0],
                              struct.unpack("<I", memory.read(state + v.resting, 4))[0]) for v in record.versions)
    finally:
        memory.close()


def _is_of(mapping: Mapping, path: str) -> bool:
    """Whether ``mapping`` is of the file at ``path``: by its number, because programs may run from other roots."""
    status = os.stat(path)
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    return mapping.inode == status.st_ino and (mapping.device == device or mapping.path == os.path.realpath(path))
