"""Memory of another process: its memory map, its bytes, and which of its pages it shares with no other process.

In: a process id, addresses. Out: ``Mapping`` (a line of /proc/PID/maps), bytes from /proc/PID/mem, intervals of pages
from /proc/PID/pagemap. Raises ``Rejected``: PROTECTED_MAPPING for memory that cannot be accessed, ENDED,
PTRACE_FORBIDDEN.

Nothing here requires that the process is stopped. A caller that needs a consistent view stops it first.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
from collections.abc import Iterable, Sequence

from memopt.ir.frozen import dataclass
from memopt.ir.reasons import Reason, Rejected
from runtime import faults

PAGE = 4096

# Bits of the highest byte of a pagemap entry (Documentation/admin-guide/mm/pagemap.rst), and for each value of that
# byte whether the page is anonymous and mapped by no other process, or swapped out.
_PRESENT, _SWAPPED, _FILE, _EXCLUSIVE = 0x80, 0x40, 0x20, 0x01
_OWN_PAGE = bytes(b & (_PRESENT | _FILE | _EXCLUSIVE) == _PRESENT | _EXCLUSIVE or b & _SWAPPED != 0 for b in range(256))
_IN_USE = bytes(b & (_PRESENT | _SWAPPED) != 0 for b in range(256))
_CHANGED_PAGE = bytes(b & (_PRESENT | _FILE) == _PRESENT or b & _SWAPPED != 0 for b in range(256))
_RUNS = re.compile(b"\x01+")
_NEAR = 64 * PAGE

_ONE = ctypes.c_ulong(1)
_libc = ctypes.CDLL(None, use_errno=True)
_libc.process_vm_readv.restype = ctypes.c_ssize_t


class _Piece(ctypes.Structure):
    """struct iovec"""

    _fields_ = (("start", ctypes.c_void_p), ("size", ctypes.c_size_t))


@dataclass(frozen=True, slots=True)
class Mapping:
    """One line of /proc/PID/maps: bytes ``[start, end)``. ``perms``: "rwx" with dashes. ``offset``: of ``start`` in the
    file. ``path``: "" for anonymous memory."""

    start: int
    end: int
    perms: str
    shared: bool
    offset: int
    device: str
    inode: int
    path: str

    @property
    def readable(self) -> bool:
        return self.perms[0] == "r"

    @property
    def writable(self) -> bool:
        return self.perms[1] == "w"

    @property
    def executable(self) -> bool:
        return self.perms[2] == "x"

    def __contains__(self, address: int) -> bool:
        return self.start <= address < self.end

    def same_file_page(self, other: Mapping) -> bool:
        """Whether the two mappings contain a common page of one file."""
        return (self.inode, self.device) == (other.inode, other.device) and self.inode != 0 and (
            self.offset < other.offset + (other.end - other.start)
            and other.offset < self.offset + (self.end - self.start))


def parse_mappings(text: str) -> tuple[Mapping, ...]:
    """Parse the text of /proc/PID/maps, whose lines are in address order (proc_pid_maps(5))."""
    return tuple(_parsed(line) for line in text.split("\n") if line)


def _parsed(line: str) -> Mapping:
    interval, perms, offset, device, inode, *path = line.split(maxsplit=5)
    start, _, end = interval.partition("-")
    return Mapping(int(start, 16), int(end, 16), perms[:3], perms[3] == "s", int(offset, 16), device, int(inode),
                   path[0] if path else "")


class _Parser:
    """Parses memory maps that are nearly the same each time: a program may have 60,000 mappings, and be stopped.

    What was read last is kept, in one value, so that threads do not disturb each other.
    """

    def __init__(self) -> None:
        self._last: tuple[bytes, dict[str, Mapping], tuple[Mapping, ...]] = b"", {}, ()

    def parse(self, content: bytes) -> tuple[Mapping, ...]:
        text, known, maps = self._last
        if content != text:
            # Not by splitlines: a path may hold any character that ends lines elsewhere. proc(5) escapes "\n" alone.
            lines = content.decode("utf-8", "surrogateescape").split("\n")[:-1]
            maps = tuple(known.get(line) or _parsed(line) for line in lines)
            self._last = content, dict(zip(lines, maps, strict=True)), maps
        return maps


_parser = _Parser()


def mappings(pid: int) -> tuple[Mapping, ...]:
    """The memory map of ``pid``. Raises as ``map_text``.

    The time is linear in the number of mappings: 0.02 s for 60,000 that were read before, 0.2 s else.
    """
    return mappings_of(map_text(pid))


def mappings_of(text: bytes) -> tuple[Mapping, ...]:
    """The mappings in the text of a memory map."""
    return _parser.parse(text)


def map_text(pid: int) -> bytes:
    """The text of /proc/PID/maps. Raises ``Rejected``: ENDED if the process is over, PTRACE_FORBIDDEN."""
    try:
        with open(f"/proc/{pid}/maps", "rb", buffering=0) as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError) as error:
        raise Rejected(Reason.ENDED, f"process {pid}") from error
    except PermissionError as error:
        raise Rejected(Reason.PTRACE_FORBIDDEN, f"reading the memory map of {pid}: {error.strerror}") from error


def mapping_at(maps: Iterable[Mapping], address: int) -> Mapping | None:
    """The mapping that contains ``address``, None if there is none."""
    return next((m for m in maps if address in m), None)


def check_private(maps: Sequence[Mapping], start: int, end: int, *, written: bool) -> tuple[int, int]:
    """Check that the bytes ``[start, end)`` lie in private memory, where no other process sees a write.

    The result is the interval ``(low, high)`` of the mappings that contain them. Raises ``Rejected``: DOUBLE_MAPPING if
    a page of a file is mapped twice and one of the two mappings is shared; SHARED_MAPPING; PROTECTED_MAPPING for holes,
    devices and missing read permission (or write permission, if ``written``). Two private mappings of one page are
    harmless: a write to either makes a copy of the page.
    """
    position = low = start
    while position < end:
        place = mapping_at(maps, position)
        if place is None or not place.readable or (written and not place.writable):
            raise Rejected(Reason.PROTECTED_MAPPING, f"at {position:#x}")
        twins = [m for m in maps if m is not place and m.same_file_page(place)]
        if any(place.shared or twin.shared for twin in twins):
            raise Rejected(Reason.DOUBLE_MAPPING, f"at {position:#x}, {place.path}")
        if place.shared:
            raise Rejected(Reason.SHARED_MAPPING, f"at {position:#x}, {place.path}")
        if place.path.startswith(("/dev/", "[v")) and place.path != "/dev/zero":
            raise Rejected(Reason.PROTECTED_MAPPING, f"at {position:#x}, {place.path}")
        low, position = min(low, place.start), place.end
    return low, max(position, end)


def _copied(pid: int, address: int, buffer: memoryview) -> int:
    """Copy from ``address`` to ``buffer`` by one process_vm_readv(2); the number of bytes copied, 0 if it failed."""
    if not len(buffer):
        return 0
    there = _Piece(address, len(buffer))
    here = _Piece(ctypes.addressof(ctypes.c_char.from_buffer(buffer)), len(buffer))
    count: int = _libc.process_vm_readv(pid, ctypes.byref(here), _ONE, ctypes.byref(there), _ONE, ctypes.c_ulong(0))
    return max(0, count)


class Memory:
    """The bytes of a process, through /proc/PID/mem. As for a debugger, writes to read-only private pages succeed.

    The descriptor is bound to the address space that the process has when it is opened: after an execve, reads and
    writes raise ``Rejected(ENDED)``. Opening raises ``Rejected``: ENDED, PTRACE_FORBIDDEN.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            self._descriptor = os.open(f"/proc/{pid}/mem", os.O_RDWR | os.O_CLOEXEC)
        except (FileNotFoundError, ProcessLookupError) as error:
            raise Rejected(Reason.ENDED, f"process {pid}") from error
        except PermissionError as error:
            raise Rejected(Reason.PTRACE_FORBIDDEN, f"opening the memory of {pid}: {error.strerror}") from error

    def close(self) -> None:
        """Close the descriptor; may be called twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def read(self, address: int, size: int) -> bytes:
        """Read exactly ``size`` bytes. Raises ``Rejected(PROTECTED_MAPPING)`` if any of them cannot be read."""
        parts = []
        position, end = address, address + size
        while position < end:
            try:
                part = os.pread(self._descriptor, end - position, position)
            except (OSError, OverflowError) as error:
                raise Rejected(Reason.PROTECTED_MAPPING, f"reading {position:#x}: {error}") from error
            if not part:
                raise Rejected(Reason.ENDED, f"process {self.pid} has left its address space")
            parts.append(part)
            position += len(part)
        return b"".join(parts)

    def read_into(self, address: int, buffer: memoryview) -> None:
        """Fill ``buffer`` from ``address`` on; raises as ``read`` does.

        Where process_vm_readv(2) is allowed, the bytes are copied only once.
        """
        done = _copied(self.pid, address, buffer)
        while done < len(buffer):
            try:
                count = os.preadv(self._descriptor, (buffer[done:],), address + done)
            except (OSError, OverflowError) as error:
                raise Rejected(Reason.PROTECTED_MAPPING, f"reading {address + done:#x}: {error}") from error
            if not count:
                raise Rejected(Reason.ENDED, f"process {self.pid} has left its address space")
            done += count

    def read_some(self, address: int, size: int) -> bytes:
        """Read up to ``size`` bytes, as far as the memory from ``address`` on is readable; perhaps none."""
        try:
            return os.pread(self._descriptor, size, address)
        except (OSError, OverflowError):
            return b""

    def write(self, address: int, data: bytes) -> None:
        """Write all of ``data``. Within one page the kernel copies it in one piece, which cannot be interrupted.

        Raises ``Rejected(PROTECTED_MAPPING)`` where the memory cannot be written.
        """
        position, view = address, memoryview(data)
        while view:
            faults.point("ptrace.pwrite")
            try:
                count = os.pwrite(self._descriptor, view, position)
            except (OSError, OverflowError) as error:
                raise Rejected(Reason.PROTECTED_MAPPING, f"writing {position:#x}: {error}") from error
            if not count:
                raise Rejected(Reason.ENDED, f"process {self.pid} has left its address space")
            view = view[count:]
            position += count

    def word(self, address: int) -> int:
        """The unsigned 64-bit value at ``address``."""
        value: int = struct.unpack("<Q", self.read(address, 8))[0]
        return value


def exclusive_pages(pid: int, spans: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Intervals of the anonymous pages in ``spans`` that no other process maps, or that are swapped out.

    In a forked child these are the pages that the child, or all other processes that had the page, have written since
    the fork: a superset of the pages that the child has written.
    ``spans``: intervals of whole pages, in ascending order. Neighbours are read together: there may be 60,000.
    """
    return _pages(pid, spans, _OWN_PAGE)


def present_intervals(pid: int, start: int, end: int) -> tuple[tuple[int, int], ...]:
    """Intervals of the pages in ``[start, end)`` that are in memory or swapped out: all private pages that the process
    has written are among them."""
    return _pages(pid, ((start, end),), _IN_USE)


def has_changed_pages(pid: int, start: int, end: int) -> bool:
    """Whether a private mapping of a file has pages in ``[start, end)`` that are not the file's any more."""
    return bool(_pages(pid, ((start, end),), _CHANGED_PAGE))


def _pages(pid: int, spans: Sequence[tuple[int, int]], wanted: bytes) -> tuple[tuple[int, int], ...]:
    """Intervals of the pages in ``spans`` whose highest pagemap byte is ``wanted``: a table of 256 bytes."""
    found: list[tuple[int, int]] = []
    with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as file:
        at = 0
        while at < len(spans):
            until = at + 1
            while until < len(spans) and spans[until][0] - spans[until - 1][1] <= _NEAR:
                until += 1
            base = spans[at][0] // PAGE
            flags = _pagemap(file.fileno(), base, -(-spans[until - 1][1] // PAGE))[7::8].translate(wanted)
            for start, end in spans[at:until]:
                first = start // PAGE
                part = flags[first - base:-(-end // PAGE) - base]
                found += [((first + run.start()) * PAGE, (first + run.end()) * PAGE) for run in _RUNS.finditer(part)]
            at = until
    return tuple(found)


def _pagemap(descriptor: int, first: int, last: int) -> bytes:
    """The pagemap entries of the pages ``[first, last)``, 8 bytes each; any user may read bits 55 to 63."""
    data = os.pread(descriptor, (last - first) * 8, first * 8)
    while len(data) < (last - first) * 8:
        part = os.pread(descriptor, (last - first) * 8 - len(data), first * 8 + len(data))
        if not part:
            break
        data += part
    return data
