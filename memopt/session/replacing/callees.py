"""Resolution of the calls in a hot loop: to a small function of the program, or a library function that has a model.

Example: ``call exp@plt`` jumps through a slot of the global offset table. The relocation of the slot names the symbol
``exp``, and the slot holds an address in libm.so.6, which exports it: the call is to libm's ``exp``.

In: the process's memory and mappings, and ``Linkage``, which reads its files. Out: a flow graph to inline, a
``LibraryFunction``, or None. Only libc and libm of glibc count as libraries. A guard of the version checks that the
slot still holds the same address, but for functions that copy or fill memory in code for a file.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Protocol

from memopt.cfg.flowgraph import discover
from memopt.cfg.inlining import is_small
from memopt.cfg.library_models import COPIES, FILLS, FUNCTIONS, LibraryFunction
from memopt.elf.image import ElfError, Image
from memopt.elf.relocations import exports, symbol_of_slot
from memopt.elf.symbols import Symbols
from memopt.ir.frozen import dataclass
from memopt.ir.graph import DecodedInstruction, Kind
from memopt.ir.reasons import Reason, Rejected
from memopt.x86.decoder import decode, rip_target
from runtime.target.memory import Mapping, Memory, mapping_at

if TYPE_CHECKING:
    from memopt.cfg.inlining import Callee

_LIBRARIES = {name: re.compile(rf"{library}(\.so\.6|-2\.\d+\.so)")
              for names, library in (((*COPIES, *FILLS), "libc"), (FUNCTIONS, "libm")) for name in names}


class Linkage(Protocol):
    """The answers of a program's files, at run-time addresses."""

    def symbol(self, slot: int) -> str:
        """The symbol whose address the linker puts into ``slot``; "" where it is not known."""

    def function(self, start: int) -> str:
        """The name of the function that begins at ``start``; "" where it is not known."""

    def exports(self, library: str, name: str) -> bool:
        """Whether the file ``library`` exports the function ``name``."""


@dataclass(frozen=True, slots=True)
class FileLinkage:
    """The linkage of the executable or library ``path``, which is loaded at ``bias``."""

    path: str
    bias: int

    def symbol(self, slot: int) -> str:
        try:
            with Image(self.path) as image:
                return symbol_of_slot(image, slot - self.bias)
        except (ElfError, OSError):
            return ""

    def function(self, start: int) -> str:
        try:
            with Image(self.path) as image:
                known = Symbols(image).function_at(start - self.bias)
        except (ElfError, OSError):
            return ""
        return known.name if known is not None and start == known.start + self.bias else ""

    def exports(self, library: str, name: str) -> bool:
        try:
            with Image(library) as image:
                return exports(image, name)
        except (ElfError, OSError):
            return False


@dataclass(frozen=True, slots=True)
class Callees:
    """The calls of one executable mapping ``text`` in a process. ``by_name``: for a file, where functions that copy and
    fill memory are known by their names alone."""

    memory: Memory
    maps: tuple[Mapping, ...]
    text: tuple[int, int]
    linkage: Linkage
    by_name: bool = False

    def __call__(self, call: DecodedInstruction) -> Callee | None:
        """The callee, if it is known and small enough to be inlined, or has a model; else None."""
        if call.target is None:
            return self._library(call)
        if not self.text[0] <= call.target < self.text[1]:
            return None
        stub = [i for i in decode(self.memory.read_some(call.target, 16), call.target, 2) if i.mnemonic != "endbr64"]
        if stub and stub[0].kind is Kind.INDIRECT:
            return self._library(stub[0])
        try:
            function = discover(self.memory.read_some, call.target, self.text)
        except Rejected:
            return None
        return function if is_small(function) else None

    def name(self, call: DecodedInstruction) -> str:
        """The name of the function that ``call`` calls: of another file, by the slot with its address, or of this one;
        "" where it is not known."""
        slot, start = rip_target(call), call.target
        if start is not None:
            stub = decode(self.memory.read_some(start, 16), start, 2)
            slot = next((rip_target(i) for i in stub if i.kind is Kind.INDIRECT), None)
        if slot is not None:
            return self.linkage.symbol(slot)
        return "" if start is None else self.linkage.function(start)

    def _library(self, branch: DecodedInstruction) -> LibraryFunction | None:
        """The function whose address is in the slot that ``branch`` jumps or calls through. Raises
        Rejected(NOT_REACHED) where the slot is filled at the first call, which has not come yet (lazy binding)."""
        slot = rip_target(branch)
        if slot is None:
            return None
        address = int.from_bytes(self.memory.read_some(slot, 8), "little")
        home = mapping_at(self.maps, address)
        if home is None or not home.executable:
            return None
        name = self.linkage.symbol(slot)
        if name not in _LIBRARIES:
            return None
        if self.text[0] <= address < self.text[1]:  # lazy binding (System V ABI, AMD64 supplement, 5.2)
            raise Rejected(Reason.NOT_REACHED, f"{name} has not been called yet")
        if not _LIBRARIES[name].fullmatch(os.path.basename(home.path)):
            return None
        if not self.linkage.exports(home.path, name):
            return None
        return LibraryFunction(name, address, None if self.by_name and name in (*COPIES, *FILLS) else slot)
