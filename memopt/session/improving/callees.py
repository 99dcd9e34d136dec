"""What a call in a hot loop leads to: a small function of the program, or one of a library that has a model.

A library function is called through a slot of the global offset table. Which one it is, is known for sure: the file's
relocation names the symbol, and what the dynamic linker put there lies in the library that defines that symbol.
That the slot still holds it is a guard of the version.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memopt.cfg.flowgraph import discover
from memopt.cfg.inlining import is_small
from memopt.cfg.library_models import COPIES, FILLS, FUNCTIONS, LibraryFunction
from memopt.elf.image import ElfError, Image
from memopt.elf.relocations import exports, symbol_of_slot
from memopt.ir.graph import DecodedInstruction, Kind
from memopt.ir.reasons import Reason, Rejected
from memopt.x86.decoder import decode, rip_target
from runtime.target.memory import Mapping, Memory, mapping_at

if TYPE_CHECKING:
    from memopt.cfg.inlining import Callee

_LIBRARIES = {name: re.compile(rf"{library}(\.so\.6|-2\.\d+\.so)")
              for names, library in (((*COPIES, *FILLS), "libc"), (FUNCTIONS, "libm")) for name in names}


@dataclass(frozen=True, slots=True)
class Callees:
    """In the program ``memory`` with the mappings ``maps``; code at ``text`` comes from ``path``, ``bias`` added."""

    memory: Memory
    maps: tuple[Mapping, ...]
    text: tuple[int, int]
    path: str
    bias: int

    def __call__(self, call: DecodedInstruction) -> Callee | None:
        """What ``call`` calls, when that is known and understood as a whole."""
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

    def _library(self, branch: DecodedInstruction) -> LibraryFunction | None:
        """The function whose address is in the slot that ``branch`` names; Rejected(NOT_REACHED) when it is not known
        before the first call."""
        slot = rip_target(branch)
        if slot is None:
            return None
        address = int.from_bytes(self.memory.read_some(slot, 8), "little")
        home = mapping_at(self.maps, address)
        if home is None or not home.executable:
            return None
        try:
            with Image(self.path) as image:
                name = symbol_of_slot(image, slot - self.bias)
            if name not in _LIBRARIES:
                return None
            if self.text[0] <= address < self.text[1]:  # lazy binding (System V ABI, AMD64 supplement, 5.2)
                raise Rejected(Reason.NOT_REACHED, f"{name} has not been called yet")
            if not _LIBRARIES[name].fullmatch(os.path.basename(home.path)):
                return None
            with Image(home.path) as library:
                return LibraryFunction(name, address, slot) if exports(library, name) else None
        except (ElfError, OSError):
            return None
