"""ELF files: symbols, function ranges, relocations, landing pads and source lines of an executable.

In: the path of an executable or shared object, link-time addresses. Out: frozen values: functions with names, ranges,
source lines, slots of the global offset table. All addresses are link-time virtual addresses; ``Image.load_bias`` gives
the difference to the addresses in a process.

May be touched: the file is mapped read-only; nothing is written but by ``kept``, and no process is looked at. The room
``rewriting`` makes new files. Files are not trusted: every offset and count is checked before use. A file that is not
what the caller asked for is an ``ElfError``; unwind tables, landing pads and line tables that cannot be read count as
absent. LIEF, symbolic and cxxfilt are imported by one module each, and only when they are needed.

- ``image``: header, program headers and sections of an ELF file, and bounds-checked reads.
- ``symbols``: functions and variables of the symbol table, and the function that an address belongs to.
- ``unwind``: function ranges from .eh_frame, which stripped programs have too.
- ``frame_rows``: where the caller's registers are at an instruction, from .eh_frame.
- ``landing``: the landing pads of a function, where exceptions go on.
- ``relocations``: the symbol behind a slot of the global offset table; functions and variables by name.
- ``lines``: source lines of addresses and loops, with what was inlined there, from DWARF.
- ``kept``: what was found out about files, kept between runs in a private directory.
- ``executable``: what kind of executable a file is, for the benchmark's records.

Tested by: ``tests/unit/memopt/elf``, one test file for each module (``frame_rows``: test_frames.py of ``rewriting``);
``tests/property/test_hostile_elf.py`` with malformed files.
"""
