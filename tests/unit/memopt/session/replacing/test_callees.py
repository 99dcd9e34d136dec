"""Calls through slots: to library functions that have a model, tied to the slot or, in code for a file, to the name."""

from __future__ import annotations

from typing import cast

import pytest

from memopt.cfg.library_models import LibraryFunction
from memopt.session.replacing.callees import Callees
from memopt.x86.decoder import decode
from runtime.target.memory import Mapping, Memory

TEXT, SLOT = 0x401000, 0x404018
LIBRARIES = {"libc.so.6": 0x7F0000000000, "libm.so.6": 0x7F0001000000, "libown.so": 0x7F0002000000}
MAPS = tuple(Mapping(start, start + 0x1000, "r-x", False, 0, "", 1, f"/lib/{name}")
             for name, start in LIBRARIES.items())


class Files:
    """A program whose slot belongs to ``name``."""

    def __init__(self, name: str) -> None:
        self.name = name

    def symbol(self, slot: int) -> str:
        return self.name if slot == SLOT else ""

    def function(self, start: int) -> str:
        return ""

    def exports(self, library: str, name: str) -> bool:
        return True


class Slot:
    """Memory in which the slot holds ``address``."""

    def __init__(self, address: int) -> None:
        self.address = address

    def read_some(self, at: int, size: int) -> bytes:
        return self.address.to_bytes(8, "little") if at == SLOT else b""


def called(name: str, library: str, *, by_name: bool) -> object:
    call, = decode(b"\xff\x15" + (SLOT - TEXT - 6).to_bytes(4, "little"), TEXT, 1)
    memory = cast(Memory, Slot(LIBRARIES[library] + 0x10))
    return Callees(memory, MAPS, (TEXT, TEXT + 0x1000), Files(name), by_name)(call)


@pytest.mark.parametrize(("name", "library"), [("memset", "libc.so.6"), ("exp", "libm.so.6")])
def test_in_a_process_the_slot_counts(name: str, library: str) -> None:
    assert called(name, library, by_name=False) == LibraryFunction(name, LIBRARIES[library] + 0x10, SLOT)


@pytest.mark.parametrize(("name", "library", "slot"), [
    ("memset", "libc.so.6", None), ("memcpy", "libc.so.6", None), ("memmove", "libc.so.6", None),
    ("exp", "libm.so.6", SLOT)])
def test_in_a_file_the_names_of_copies_and_fills_are_enough(name: str, library: str, slot: int | None) -> None:
    assert called(name, library, by_name=True) == LibraryFunction(name, LIBRARIES[library] + 0x10, slot)


@pytest.mark.parametrize("by_name", [False, True])
def test_functions_of_other_libraries_have_no_model(by_name: bool) -> None:
    assert called("memset", "libown.so", by_name=by_name) is None
    assert called("puts", "libc.so.6", by_name=by_name) is None
