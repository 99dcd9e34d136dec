"""The kind of an executable (PIE, static, stripped, ...), by LIEF, which only this module imports.

In: a path. Out: an ``Executable``. LIEF takes about 0.3 s to import, so this is for the benchmark's records and for
tools that write executables. Code that works on a running program uses ``memopt.elf.image``.
"""

from __future__ import annotations

from memopt.elf.image import ElfError, Image
from memopt.ir.frozen import dataclass


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
