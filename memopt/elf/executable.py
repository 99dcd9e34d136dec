"""The kind of an executable (PIE, static, stripped, ...), by LIEF, which only this module imports.

In: a path. Out: an ``Executable``. In: the bytes of a file and of the same file rewritten. Out: nothing, or an error.
LIEF takes about 0.3 s to import, so this is for the benchmark's records and for tools that write executables. Code that
works on a running program uses ``memopt.elf.image``.
"""

from __future__ import annotations

from typing import Any

from memopt.elf.image import ElfError, Image
from memopt.ir.frozen import dataclass
from memopt.ir.reasons import VerifyError


@dataclass(frozen=True, slots=True)
class Executable:
    """The kind of an executable file."""

    position_independent: bool
    static: bool  # it has no program interpreter
    stripped: bool  # it has no .symtab
    debug_lines: bool  # it has DWARF line tables
    build_id: str  # hexadecimal; "" without one
    libraries: tuple[str, ...]  # the shared objects that it names (DT_NEEDED)


def describe(path: str) -> Executable:
    """The kind of the file at ``path``; it is checked before LIEF sees it.

    Raises ``ElfError`` (malformed, another machine) and ``OSError``.
    """
    with Image(path):
        pass
    import lief

    lief.logging.disable()
    binary = lief.ELF.parse(path)
    if binary is None:
        raise ElfError("malformed")
    build_id = binary.get(lief.ELF.Note.TYPE.GNU_BUILD_ID)
    return Executable(
        position_independent=binary.is_pie,
        static=not binary.has_interpreter,
        stripped=not binary.has_section(".symtab"),
        debug_lines=binary.has_section(".debug_line"),
        build_id=bytes(build_id.description).hex() if build_id else "",
        libraries=tuple(binary.libraries),
    )


def check_rewritten(original: bytes, new: bytes) -> None:
    """A second reader's judgement on a rewritten file: what the original tells a loader and a linker, ``new`` tells.

    Raises ``ElfError`` where LIEF cannot read the original, ``VerifyError`` where the two disagree.
    """
    before, after = _parsed(original), _parsed(new)
    if before is None:
        raise ElfError("malformed")
    if after is None:
        raise VerifyError("LIEF cannot read the rewritten file")
    told, found = _told(before), _told(after)
    for name, value in told.items():
        if found[name] != value:
            raise VerifyError(f"the rewritten file has other {name}")
    names = [str(s.name) for s in before.sections]
    if [str(s.name) for s in after.sections][:len(names)] != names:
        raise VerifyError("the rewritten file has other sections")


def _parsed(content: bytes) -> Any:
    import io

    import lief

    lief.logging.disable()
    config = lief.ELF.ParserConfig()
    config.count_mtd = lief.ELF.ParserConfig.DYNSYM_COUNT.SECTION  # of hash tables it reads some only in part
    return lief.ELF.parse(io.BytesIO(content), config)


def _told(binary: Any) -> dict[str, object]:
    """What loaders and linkers read, but for the places of tables, which may move."""
    import lief

    moving = {lief.ELF.DynamicEntry.TAG.GNU_HASH, lief.ELF.DynamicEntry.TAG.HASH, lief.ELF.DynamicEntry.TAG.SYMTAB}
    note = binary.get(lief.ELF.Note.TYPE.GNU_BUILD_ID)
    return {
        "entry point": binary.entrypoint,
        "interpreter": str(binary.interpreter) if binary.has_interpreter else "",
        "libraries": tuple(map(str, binary.libraries)),
        "dynamic entries": [(int(e.tag), int(e.value)) for e in binary.dynamic_entries if e.tag not in moving],
        "exported and imported symbols": [(str(s.name), int(s.value), int(s.size)) for s in binary.dynamic_symbols],
        "relocations": sum(1 for _ in binary.relocations),
        "hash tables": (tuple(binary.gnu_hash.buckets) if binary.use_gnu_hash else (),
                        tuple(binary.sysv_hash.buckets) if binary.use_sysv_hash else ()),
        "build id": bytes(note.description).hex() if note else "",
        "notes": sorted(bytes(n.description) for n in binary.notes),
    }
