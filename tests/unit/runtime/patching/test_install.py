"""Where somebody may stand in the code under a patch, and when a loop may move."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import cast

import pytest

from runtime.patching import install
from runtime.patching.install import Patch, Unpatched, _movable, inner_starts
from runtime.target.memory import Memory
from runtime.target.tracee import Tracee

MOVED = {0x1000: 0x9000, 0x1004: 0x9004, 0x100A: 0x900A}  # the last instruction ends at 0x100f


@dataclass
class Standing:
    """A process of one thread at ``rip``."""

    rip: int
    threads: tuple[int, ...] = (1,)
    restarting: bool = False

    def registers(self, _tid: int) -> Standing:
        return self


@pytest.mark.parametrize(("rip", "word", "movable"), [
    (0x5000, 0, True),
    (0x1004, 0, True),
    (0x1006, 0, False),  # in the middle of an instruction, as it was decoded
    (0x5000, 0x1004, False),  # a handler returns there
    (0x5000, 0x1006, False),
    (0x5000, 0x100F, True),  # what follows the loop, as the caller of its function may
    (0x100F, 0, True),
])
def test_who_stands_in_a_loop_moves_with_it(rip: int, word: int, movable: bool,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install.contexts, "suspended", lambda _, low, high, everywhere: low <= word < high)
    process = Standing(rip)
    assert _movable(cast(Tracee, process), MOVED) is movable
    assert not _movable(cast(Tracee, dataclasses.replace(process, restarting=True)), MOVED)


@pytest.mark.parametrize(("code", "inside"), [
    ("b801000000 480106", []),  # mov eax, 1: five bytes
    ("c5fb1004c8 480106", []),  # vmovsd
    ("31c0 31d2 31f6 c3", [2, 4]),
    ("4801c8 4801c8 c3", [3]),
    ("90 90 90 90 90 90", [1, 2, 3, 4]),
    ("c3", [1, 2, 3, 4]),  # the code ends here: nothing is known about what follows
    ("4801c8 06 06 06 06", [3, 4]),  # nor where it does not decode
])
def test_places_to_stand_under_a_patch(code: str, inside: list[int]) -> None:
    patch = Patch(0x1000, bytes(5), bytes(5))
    assert sorted(inner_starts(bytes.fromhex(code), patch)) == [0x1000 + at for at in inside]


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
