"""What kind of executable a file is, by LIEF, which only this module imports.

LIEF costs about 0.3 s to import: this is for the benchmark's records and for writing executables, never for the way
of a running program, which uses ``memopt.elf.image``.
"""

from __future__ import annotations

from dataclasses import dataclass

from memopt.elf.image import ElfError, Image


@dataclass(frozen=True, slots=True)
class Executable:
    """``libraries``: the shared objects it names. ``build_id`` in hexadecimal, "" when it has none."""

    position_independent: bool
    static: bool
    stripped: bool
    debug_lines: bool
    build_id: str
    libraries: tuple[str, ...]


def describe(path: str) -> Executable:
    """Raises ``ElfError`` (malformed, another machine) and ``OSError``; the file is checked before LIEF sees it."""
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
