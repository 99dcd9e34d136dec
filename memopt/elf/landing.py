"""Where calls that end with an exception go on: the landing pads of a function, from its language-specific data.

The layout is that of the tables of exceptions of GCC and LLVM (.gcc_except_table; C++ ABI for Itanium, Exception
Handling Tables), to which a function's frame description entry points. Addresses are link-time addresses. What cannot
be read is "no landing pads", never an error.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from memopt.elf.image import ElfError, Image
from memopt.elf.unwind import data_of_function

_OMITTED = 0xFF
_FIXED = {0x02: "<H", 0x03: "<I", 0x04: "<Q", 0x0A: "<h", 0x0B: "<i", 0x0C: "<q"}
_ULEB128 = 0x01
_MOST_SITES = 1 << 16


@dataclass(frozen=True, slots=True)
class LandingPad:
    """``start``: where exceptions lead that leave the calls in ``calls``."""

    start: int
    calls: range

    def moved(self, by: int) -> LandingPad:
        return LandingPad(self.start + by, range(self.calls.start + by, self.calls.stop + by))


def landing_pads(image: Image, function: int) -> tuple[LandingPad, ...]:
    """Of the function that starts at ``function``."""
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
        raise ElfError("a number in its tables of exceptions is malformed")

    def number(self, encoding: int) -> int:
        if encoding == _ULEB128:
            return self.uleb128()
        if encoding not in _FIXED:
            raise ElfError("its tables of exceptions are of an unknown form")
        form = _FIXED[encoding]
        self.at += struct.calcsize(form)
        value: int = struct.unpack(form, self._image.read(self.at - struct.calcsize(form), struct.calcsize(form)))[0]
        return value


def _pads(read: _Reader, function: int) -> Iterator[LandingPad]:
    if read.byte() != _OMITTED:  # where landing pads are relative to
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
