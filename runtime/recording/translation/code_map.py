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
from dataclasses import field
from functools import cached_property

from memopt.cfg.noreturn import NoReturn, does_not_return
from memopt.elf.image import ElfError, Image
from memopt.elf.kept import load, store
from memopt.elf.landing import LandingPad, landing_pads
from memopt.elf.relocations import slots as slots_of
from memopt.elf.symbols import Function, Symbols
from memopt.ir.frozen import dataclass
from memopt.ir.reasons import Reason, Rejected
from runtime.target.memory import (
    Mapping,
    Memory,
    has_changed_pages,
    map_text,
    mapping_at,
    mappings,
    mappings_of,
)

_File = tuple[str, int, int]
_KIND = "symbols"
_STUBS = (".plt", ".iplt")  # how the names of their sections begin
_RESOLVER = 16  # in the global offset table (AMD64 supplement to the System V ABI, 5.2)


@dataclass(frozen=True, slots=True)
class FileCode:
    """What is known of a file, link-time: its functions, and the GOT slots of those that do not return.

    ``stubs``: where the stubs lie by which it calls other files. ``resolver``: the slot with the address of the dynamic
    linker's resolver; 0 if there is none.
    """

    functions: tuple[Function, ...] = ()
    slots: tuple[int, ...] = ()
    stubs: tuple[tuple[int, int], ...] = ()
    resolver: int = 0


@dataclass
class Files:
    """What is known of the files that the processes of a run are mapped from; each is read once."""

    code: dict[_File, FileCode] = field(default_factory=dict)
    starts: dict[tuple[_File, int], int] = field(default_factory=dict)  # link-time addresses, by offset in the file


@dataclass(frozen=True)
class Text:
    """A mapping of code."""

    mapping: Mapping
    bytes: bytes
    bias: int  # live address minus link-time address
    file: _File  # which file it comes from, and when that was written
    known: FileCode

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        """Its functions, by live address."""
        bias, mapping = self.bias, self.mapping
        return tuple(Function(f.start + bias, f.end + bias, f.name)
                     for f in self.known.functions if mapping.start <= f.start + bias < mapping.end)

    @cached_property
    def endings(self) -> NoReturn:
        """Which calls in it do not return."""

        def read(address: int, size: int) -> bytes:
            offset = address - self.mapping.start
            return self.bytes[offset:offset + size] if offset >= 0 else b""

        return NoReturn(read, self.functions, frozenset(slot + self.bias for slot in self.known.slots))

    def has_stub(self, address: int) -> bool:
        """Whether code at ``address`` belongs to stubs by which the file calls others."""
        return any(start <= address - self.bias < end for start, end in self.known.stubs)

    def begins(self, address: int) -> bool:
        """Whether a function is known that begins at ``address``."""
        functions, address = self.known.functions, address - self.bias
        index = bisect.bisect_left(functions, address, key=lambda f: f.start)
        return index < len(functions) and functions[index].start == address

    def bounds(self, address: int) -> tuple[int, int]:
        """Start and end of the function around ``address``. If there is none: from ``address`` to the next function."""
        functions, address = self.known.functions, address - self.bias
        index = bisect.bisect_right(functions, address, key=lambda f: f.start)
        if index and address < functions[index - 1].end:
            return functions[index - 1].start + self.bias, functions[index - 1].end + self.bias
        following = functions[index].start + self.bias if index < len(functions) else self.mapping.end
        address += self.bias
        return address, max(min(following, self.mapping.end), address + 1)

    def pads(self, address: int) -> tuple[LandingPad, ...]:
        """The landing pads (exception handlers) of the function that begins at ``address``."""
        image = _with_exceptions(self.file)
        return () if image is None else tuple(pad.moved(self.bias) for pad in landing_pads(image, address - self.bias))

    def name(self, address: int) -> str:
        """The name of the function that begins at ``address``; "" if none is known."""
        functions, address = self.known.functions, address - self.bias
        index = bisect.bisect_left(functions, address, key=lambda f: f.start)
        return functions[index].name if index < len(functions) and functions[index].start == address else ""


def _file_code(image: Image) -> FileCode:
    """What is known of a file. Reading the symbols of a large library takes a tenth of a second: that is kept."""
    digest = image.digest()
    kept = load(_KIND, digest) if digest else None
    if isinstance(kept, FileCode):
        return kept
    stubs = tuple((s.address, s.address + s.size) for s in image.sections if s.name.startswith(_STUBS))
    table = next((s.address for s in image.sections if s.name == ".got.plt"), 0)
    found = FileCode(Symbols(image).everything, tuple(
        at for at, name in slots_of(image).items() if does_not_return(name)), stubs, table and table + _RESOLVER)
    if digest:
        store(found, _KIND, digest)
    return found


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

    def __init__(self, pid: int, files: Files) -> None:
        self._pid, self._files = pid, files
        self._memory = Memory(pid)
        self.texts: list[Text] = []
        self.all: list[Text] = []
        self.unsure: list[tuple[int, int]] = []
        self.maps: tuple[Mapping, ...] = ()
        self._looked_at = b""  # the memory map when ``changed`` looked last
        self._were_changed = False  # whether a text was not what its file has when it was read

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
        text = map_text(self._pid)
        if text == self._looked_at and not self._were_changed and not any(
                has_changed_pages(self._pid, t.mapping.start, t.mapping.end) for t in self.texts):
            return []
        self._looked_at, self.maps = text, mappings_of(text)
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

    def is_resolver(self, address: int) -> bool:
        """Whether the stubs of a file reach the dynamic linker at ``address``, to be told where a function is."""
        slots = (t.known.resolver + t.bias for t in self.texts if t.known.resolver)
        return any(self._memory.read_some(slot, 8) == address.to_bytes(8, "little") for slot in slots)

    def forked(self, pid: int) -> CodeMap:
        """The code of a forked child."""
        child = CodeMap(pid, self._files)
        child.texts, child.all, child.maps = list(self.texts), list(self.all), self.maps
        child.unsure, child._were_changed = list(self.unsure), self._were_changed
        return child

    def close(self) -> None:
        """Closes the memory of the process."""
        self._memory.close()

    def _text(self, mapping: Mapping) -> Text:
        code = self._memory.read_some(mapping.start, mapping.end - mapping.start)
        with suppress(OSError):
            self._were_changed |= has_changed_pages(self._pid, mapping.start, mapping.end)
        file, files = _file(mapping.path), self._files
        place = file, mapping.offset
        if place not in files.starts:
            files.starts[place] = 0
            with suppress(ElfError, OSError), Image(mapping.path) as image:
                files.starts[place] = mapping.start - image.load_bias(mapping.start, mapping.offset)
                if file not in files.code:
                    files.code[file] = _file_code(image)
        return Text(mapping, code, mapping.start - files.starts[place], file, files.code.get(file, FileCode()))
