"""Traces in files, and as text: a line for each access, such as ``R8@4005e1 7f12a0c8``.

The text has the kind of the access, its size in bytes, the address of the instruction, and the address that it
accessed.

The file begins with ``memopt trace 1`` and a newline. Then come pieces, each compressed by itself (zlib), behind a head
of four letters, a thread and a length in bytes (32, 32 and 64 bits, little endian):

- ``CODE``: JSON, more blocks, which continue the numbering. Each is a list of accesses [address of the instruction,
  bytes, "R", "W" or "RW", whether it is repeated].
- ``NODE``: new nodes of a thread, each with the node that called it, 64 bits each.
- ``WORD``: words of the trace of a thread (``format.py``).
- ``MAPS``: JSON, [file, first address, last address plus 1, bias]. An address minus the bias is the address in the
  file.

In: blocks, nodes and words while the program runs. Out: the file; its pieces; its text.
"""

from __future__ import annotations

import json
import os
import stat
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import numpy
from numpy.typing import NDArray

from memopt.traces.core.compiler import kernel
from memopt.traces.core.format import BLOCK, EXTRA, Words
from memopt.traces.core.tables import Array

MAGIC = b"memopt trace 1\n"
_HEAD = struct.Struct("<4sIQ")
_CODE, _NODE, _WORD, _MAPS = b"CODE", b"NODE", b"WORD", b"MAPS"
_FAST = 1  # level of compression
_OUT = 1 << 22  # bytes of text at a time
_LINE = 64  # bytes of a line at most; less than half of them stand before the address

Row = tuple[int, int, str, bool]


class TraceError(Exception):
    """The file is no trace, or is cut off. The message is for the user."""


class TraceWriter:
    """Writes a trace file. All methods raise ``OSError``."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "wb")  # noqa: SIM115 - closed by ``close``
        self.begin()

    def begin(self) -> None:
        """Begins the file anew: the program has executed another one (execve), and the content so far describes the old
        one.
        """
        if stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
            self._file.seek(0)
            self._file.truncate()
        self._file.write(MAGIC)

    def code(self, blocks: Sequence[Sequence[Row]]) -> None:
        """Writes more blocks."""
        self._put(_CODE, 0, json.dumps(blocks).encode())

    def nodes(self, thread: int, nodes: Array) -> None:
        """Writes new nodes of a thread: rows of (node, the node that called it)."""
        self._put(_NODE, thread, nodes.astype("<i8").tobytes())

    def words(self, thread: int, words: Words) -> None:
        """Writes words of the trace of a thread."""
        self._put(_WORD, thread, words.astype("<u8").tobytes())

    def close(self, maps: Sequence[tuple[str, int, int, int]]) -> None:
        """Writes the mappings, and closes the file."""
        self._put(_MAPS, 0, json.dumps(maps).encode())
        self._file.close()

    def _put(self, kind: bytes, thread: int, content: bytes) -> None:
        packed = zlib.compress(content, _FAST)
        self._file.write(_HEAD.pack(kind, thread, len(packed)) + packed)


def pieces(file: BinaryIO) -> Iterator[tuple[bytes, int, bytes]]:
    """Yields letters, thread and content of each piece. Raises ``TraceError``."""
    if file.read(len(MAGIC)) != MAGIC:
        raise TraceError("this is not a trace; memopt profile --trace FILE writes one")
    while head := file.read(_HEAD.size):
        try:
            kind, thread, length = _HEAD.unpack(head)
            yield kind, thread, zlib.decompress(file.read(length))
        except (struct.error, zlib.error):
            raise TraceError("the trace is cut off") from None


def text(file: BinaryIO) -> Iterator[bytes]:
    """Yields the accesses as lines. Pieces of different threads follow each other as they were written. Raises
    ``TraceError``.
    """
    firsts: list[int] = []  # of each block: where its accesses begin in ``prefixes``
    prefixes: list[tuple[bytes, int, int, int]] = []
    state: dict[int, tuple[int, Array]] = {}  # by thread: its block, and the words of a record that is not complete
    out, tables = numpy.zeros(_OUT, numpy.uint8), _tables([], [])
    for kind, thread, content in pieces(file):
        if kind == _CODE:
            for block in json.loads(content):
                firsts.append(len(prefixes))
                prefixes += [(f"{what}{size}@{address:x} ".encode(), size, len(what), repeated)
                             for address, size, what, repeated in block]
            tables = _tables([*firsts, len(prefixes)], prefixes)
        elif kind == _WORD:
            block, rest = state.get(thread, (-1, numpy.zeros(0, numpy.int64)))
            words = numpy.concatenate((rest, numpy.frombuffer(content, "<u8").astype(numpy.uint64).view(numpy.int64)))
            at, done, length = 0, 0, -1
            while length:
                at, block, done, length = _lines(words, at, block, done, *tables, out)
                yield out[:length].tobytes()
            state[thread] = block, words[at:].copy()


def _tables(firsts: list[int],
            prefixes: list[tuple[bytes, int, int, int]]) -> tuple[Array, Array, NDArray[numpy.uint8]]:
    letters = numpy.zeros((max(1, len(prefixes)), _LINE // 2), numpy.uint8)
    for row, (prefix, *_) in enumerate(prefixes):
        kept = prefix.replace(b"RW", b"R", 1)
        letters[row, :len(kept)] = numpy.frombuffer(kept, numpy.uint8)
    shapes = numpy.array([(len(p.replace(b"RW", b"R", 1)), size, both, repeated)
                          for p, size, both, repeated in prefixes] or [(0, 0, 0, 0)], numpy.int64)
    return numpy.array(firsts or [0], numpy.int64), shapes, letters


@kernel(forceinline=True)
def _line(out, at, letters, length, address):
    for index in range(length):
        out[at + index] = letters[index]
    at += length
    shift = 60
    while shift and not address >> shift & 15:
        shift -= 4
    while shift >= 0:
        digit = address >> shift & 15
        out[at] = 48 + digit if digit < 10 else 87 + digit
        at += 1
        shift -= 4
    out[at] = 10
    return at + 1


@kernel()
def _lines(words, at, block, done, firsts, shapes, letters, out):
    """Writes lines to ``out`` from the word ``at`` on, of which the first ``done`` repetitions are written already.
    Returns where it stopped (word, block, repetitions) and the number of bytes written.
    """
    count, size = len(words), 0
    while at < count:
        word = words[at]
        index = word >> 48 & 0xFFFF
        if index == BLOCK:
            if at + 1 == count:
                break
            block = word & 0xFFFFFFFF
            at += 2
            continue
        if index == EXTRA:
            at += 1
            continue
        row = firsts[block] + index
        times, address = 1, word & 0xFFFFFFFFFFFF
        if shapes[row, 3]:
            if at + 1 == count:
                break
            times = words[at + 1]
        while done < times:
            if size + 2 * _LINE > len(out):
                return at, block, done, size
            size = _line(out, size, letters[row], shapes[row, 0], address + done * shapes[row, 1])
            if shapes[row, 2] > 1:
                kind = size
                size = _line(out, size, letters[row], shapes[row, 0], address + done * shapes[row, 1])
                out[kind] = 87  # W
            done += 1
        at += 1 + shapes[row, 3]
        done = 0
    return at, block, done, size
