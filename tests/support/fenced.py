"""Memory between two inaccessible pages: whoever reads one byte before it or behind it dies."""

from __future__ import annotations

import ctypes
import mmap

_LIBC = ctypes.CDLL(None, use_errno=True)
_PAGE = mmap.PAGESIZE


class Fenced:
    """``pages`` pages of zeros from ``start`` to ``end``, with an inaccessible page on either side."""

    def __init__(self, pages: int = 1) -> None:
        self._memory = mmap.mmap(-1, (pages + 2) * _PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        whole = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self.start, self.end = whole + _PAGE, whole + (pages + 1) * _PAGE
        for page in (whole, self.end):
            self.protect(page, 0)

    def protect(self, page: int, protection: int) -> None:
        """mprotect(2) of one page."""
        if _LIBC.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(_PAGE), protection):
            raise OSError(ctypes.get_errno(), "mprotect")

    def write(self, address: int, data: bytes) -> None:
        assert self.start <= address <= address + len(data) <= self.end
        ctypes.memmove(address, data, len(data))

    def read(self, address: int, size: int) -> bytes:
        return ctypes.string_at(address, size)
