"""The code of a process: the files it is mapped from, their functions, and the bytes that run.

In: a process, addresses. Out: a ``Text`` for the mapping around an address, with the functions of its file at their
live addresses. Only code that cannot change is given out: that of mappings of files which are executable, not writable
and not shared, and that of the kernel's vdso.
"""

from __future__ import annotations

import bisect
import functools
import os
from contextlib import suppress
from dataclasses import dataclass

from memopt.cfg.noreturn import NoReturn, does_not_return
from memopt.elf.image import ElfError, Image
from memopt.elf.landing import LandingPad, landing_pads
from memopt.elf.relocations import slots as slots_of
from memopt.elf.symbols import Function, Symbols, function_among
from memopt.ir.reasons import Reason, Rejected
from runtime.target.memory import Mapping, Memory, mapping_at, mappings


@dataclass(frozen=True, slots=True)
class Text:
    """A mapping of code."""

    mapping: Mapping
    bytes: bytes
    bias: int  # live address minus link-time address
    functions: tuple[Function, ...]  # by live address
    endings: NoReturn  # which calls in it do not return

    def bounds(self, address: int) -> tuple[int, int]:
        """Start and end of the function around ``address``. If there is none: from ``address`` to the next function."""
        found = function_among(self.functions, address)
        if found is not None:
            return found.start, found.end
        index = bisect.bisect_right(self.functions, address, key=lambda f: f.start)
        following = self.functions[index].start if index < len(self.functions) else self.mapping.end
        return address, max(following, address + 1)

    def pads(self, address: int) -> tuple[LandingPad, ...]:
        """The landing pads (exception handlers) of the function that begins at ``address``."""
        image = _with_exceptions(_file(self.mapping.path))
        return () if image is None else tuple(pad.moved(self.bias) for pad in landing_pads(image, address - self.bias))

    def name(self, address: int) -> str:
        """The name of the function that begins at ``address``; "" if none is known."""
        index = bisect.bisect_left(self.functions, address, key=lambda f: f.start)
        found = index < len(self.functions) and self.functions[index].start == address
        return self.functions[index].name if found else ""


def _file(path: str) -> tuple[str, int, int]:
    """Tells files apart that have one path, one after the other: the path, the inode, when it was written. Zeros where
    there is no such file.
    """
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return path, 0, 0
    return path, found.st_ino, found.st_mtime_ns


@functools.cache
def _with_exceptions(file: tuple[str, int, int]) -> Image | None:
    """The file, which stays open, if any of its functions catches exceptions; else None."""
    with suppress(ElfError, OSError):
        image = Image(file[0])
        if any(section.name == ".gcc_except_table" for section in image.sections):
            return image
        image.close()
    return None


def _is_still(mapping: Mapping) -> bool:
    """Whether a mapping has code of a file, or of the kernel, that cannot be written."""
    return mapping.executable and not mapping.writable and not mapping.shared and (
        (mapping.path.startswith("/") and mapping.inode != 0) or mapping.path == "[vdso]")


class CodeMap:
    """The code of one process that can be copied: it lies in files that are mapped as executable and not writable, or
    it is the kernel's own (vdso). Other code may change at any time, so a copy of it could become wrong.

    ``texts``: the mappings that exist. ``all``: also those that are gone. ``unsure``: addresses ``[start, end)`` whose
    code may change unseen, so that no text is given out around it.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._memory = Memory(pid)
        self.texts: list[Text] = []
        self.all: list[Text] = []
        self.unsure: list[tuple[int, int]] = []
        # By file: functions, and the GOT slots of those that do not return.
        self._symbols: dict[tuple[str, int, int], tuple[tuple[Function, ...], tuple[int, ...]]] = {}
        self.maps: tuple[Mapping, ...] = ()

    def text(self, address: int) -> Text:
        """The mapping around ``address``. Raises Rejected(UNSUPPORTED_INSTRUCTION) for code in no file,
        Rejected(ENDED).
        """
        found = next((t for t in self.texts if address in t.mapping), None)
        if found is None:
            self.maps = mappings(self._pid)
            mapping = mapping_at(self.maps, address)
            if mapping is None or not _is_still(mapping):
                raise Rejected(Reason.UNSUPPORTED_INSTRUCTION, f"code in no file, at {address:#x}")
            if any(start < mapping.end and mapping.start < end for start, end in self.unsure):
                raise Rejected(Reason.UNSUPPORTED_INSTRUCTION, f"code that is being changed, at {address:#x}")
            found = self._text(mapping)
            self.texts.append(found)
            self.all.append(found)
        return found

    def changed(self) -> list[Text]:
        """The mappings whose code is not what it was, or may change now."""
        self.maps = mappings(self._pid)
        still = [m for m in self.maps if _is_still(m)]
        return [t for t in self.texts if self._memory.read_some(t.mapping.start, len(t.bytes)) != t.bytes
                or not any(m.start <= t.mapping.start and t.mapping.end <= m.end for m in still)]

    def forget(self, start: int, end: int) -> list[Text]:
        """Removes and returns the mappings that overlap ``[start, end)``, whose code is about to change."""
        gone = [t for t in self.texts if t.mapping.start < end and start < t.mapping.end]
        self.texts = [t for t in self.texts if t not in gone]
        return gone

    def read(self, address: int, size: int) -> bytes:
        """Bytes of the process's code, or of its other memory; fewer than ``size`` at the end of what can be read."""
        for text in self.texts:
            if address in text.mapping:
                offset = address - text.mapping.start
                return text.bytes[offset:offset + size]
        return self._memory.read_some(address, size)

    def forked(self, pid: int) -> CodeMap:
        """The code of a forked child."""
        child = CodeMap(pid)
        child.texts, child.all, child.maps = list(self.texts), list(self.all), self.maps
        child.unsure = list(self.unsure)
        child._symbols = self._symbols
        return child

    def close(self) -> None:
        """Closes the memory of the process."""
        self._memory.close()

    def _text(self, mapping: Mapping) -> Text:
        code = self._memory.read_some(mapping.start, mapping.end - mapping.start)
        bias = mapping.start
        functions: tuple[Function, ...] = ()
        slots: frozenset[int] = frozenset()
        with suppress(ElfError, OSError), Image(mapping.path) as image:
            bias = image.load_bias(mapping.start, mapping.offset)
            file = _file(mapping.path)
            if file not in self._symbols:
                self._symbols[file] = Symbols(image).everything, tuple(
                    at for at, name in slots_of(image).items() if does_not_return(name))
            known, at = self._symbols[file]
            functions = tuple(Function(f.start + bias, f.end + bias, f.name)
                              for f in known if mapping.start <= f.start + bias < mapping.end)
            slots = frozenset(slot + bias for slot in at)

        def read(address: int, size: int) -> bytes:
            offset = address - mapping.start
            return code[offset:offset + size] if offset >= 0 else b""

        return Text(mapping, code, bias, functions, NoReturn(read, functions, slots))
