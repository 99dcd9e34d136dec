"""Landing pads: where a function goes on when a call in it ends with an exception.

Example: in ``try { f(); } catch (...) { g(); }`` the code of the handler is a landing pad for the call of f. The flow
graph has no other edge to it.

In: the file, the start of a function. Out: its landing pads with the calls they belong to, as link-time addresses. They
come from the function's language-specific data, to which its frame description entry points: the exception tables of
GCC and LLVM (.gcc_except_table; C++ ABI for Itanium, Exception Handling Tables). Tables that cannot be read count as
"no landing pads", never as an error.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator

from memopt.elf.image import ElfError, Image
from memopt.elf.unwind import data_of_function
from memopt.ir.frozen import dataclass

_OMITTED = 0xFF
_FIXED = {0x02: "<H", 0x03: "<I", 0x04: "<Q", 0x0A: "<h", 0x0B: "<i", 0x0C: "<q"}
_ULEB128 = 0x01
_MOST_SITES = 1 << 16


@dataclass(frozen=True, slots=True)
class LandingPad:
    """The code at ``start`` runs after an exception in a call within the addresses ``calls``."""

    start: int
    calls: range

    def moved(self, by: int) -> LandingPad:
        """The landing pad with all addresses larger by ``by`` (link-time to live addresses)."""
        return LandingPad(self.start + by, range(self.calls.start + by, self.calls.stop + by))


def landing_pads(image: Image, function: int) -> tuple[LandingPad, ...]:
    """The landing pads of the function that starts at link-time address ``function``."""
    with contextlib.suppress(ElfError, struct.error):
        data = data_of_function(image, function)
        if data is not None:
            return tuple(_pads(_Reader(image, image.offset_of(data)), function))
    return ()


class _Reader:
    def __init__(self, image: Image, at: int) -> None:
        self._image, self.at = image, at

    def byte(self) -> int:
        self.at += 1
        return self._image.read(self.at - 1, 1)[0]

    def uleb128(self) -> int:
        value = shift = 0
        while shift < 70:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return value
            shift += 7
        raise ElfError("a number in its exception tables is malformed")

    def number(self, encoding: int) -> int:
        if encoding == _ULEB128:
            return self.uleb128()
        if encoding not in _FIXED:
            raise ElfError("its exception tables have an unknown encoding")
        form = _FIXED[encoding]
        self.at += struct.calcsize(form)
        value: int = struct.unpack(form, self._image.read(self.at - struct.calcsize(form), struct.calcsize(form)))[0]
        return value


def _pads(read: _Reader, function: int) -> Iterator[LandingPad]:
    if read.byte() != _OMITTED:  # a base of the landing pads other than the function's start
        return
    if read.byte() != _OMITTED:
        read.uleb128()
    encoding, size = read.byte(), read.uleb128()
    end = read.at + size
    for _ in range(_MOST_SITES):
        if read.at >= end:
            return
        first, length, pad, _ = read.number(encoding), read.number(encoding), read.number(encoding), read.uleb128()
        if pad:
            yield LandingPad(function + pad, range(function + first, function + first + length))
