"""When a loop may move: nobody stands in it where there is no copy, and nobody comes back to it."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import cast

import pytest

from runtime.patching.install import Patch, Unpatched, _movable
from runtime.target.memory import Memory
from runtime.target.tracee import Tracee

MOVED = {0x1000: 0x9000, 0x1004: 0x9004, 0x100A: 0x900A}  # the last instruction ends at 0x100f
PATCH = Patch(0x1000, bytes(5), bytes(5))


@dataclass
class Standing:
    """A process of one thread at ``rip``, with one word on its stack."""

    rip: int
    word: int = 0
    threads: tuple[int, ...] = (1,)
    rsp: int = 0x7000
    restarting: bool = False

    @property
    def memory(self) -> Standing:
        return self

    def read_some(self, _start: int, _size: int) -> bytes:
        return struct.pack("<Q", self.word)

    def registers(self, _tid: int) -> Standing:
        return self


@pytest.mark.parametrize(("rip", "word", "movable"), [
    (0x5000, 0, True),
    (0x1004, 0, True),
    (0x1006, 0, False),  # in the middle of an instruction, as it was decoded
    (0x5000, 0x1004, False),  # a handler returns there
    (0x5000, 0x100F, True),  # what follows the loop, as the caller of its function may
    (0x100F, 0, True),
])
def test_who_stands_in_a_loop_moves_with_it(rip: int, word: int, movable: bool) -> None:
    assert _movable(cast(Tracee, Standing(rip, word)), PATCH, MOVED) is movable


@dataclass
class Text:
    """Code at 0x1000 with two jumps in it."""

    code: bytes

    def read_some(self, start: int, size: int) -> bytes:
        return self.code[start - 0x1000:start - 0x1000 + size]

    read = read_some


def test_code_is_read_as_it_was_before_it_was_patched() -> None:
    original = bytes(range(64))
    patches = tuple(Patch(0x1000 + at, original[at:at + 5], b"\xe9\0\0\0\0") for at in (3, 40))
    patched = bytearray(original)
    for patch in patches:
        patched[patch.address - 0x1000:patch.end - 0x1000] = patch.replacement
    code = Unpatched(cast(Memory, Text(bytes(patched))), patches)
    for start in range(64):
        for size in (1, 4, 7, 64):
            assert code.read_some(0x1000 + start, size) == original[start:start + size]
    assert code.read(0x1000, 64) == original
