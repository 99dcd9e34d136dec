"""Rewritten ELF files: new code and zeroed memory are added to a file, and a record by which that is undone.

Example: ``memopt rewrite`` has the code of a version for a loop of ``prog``. ``room`` says for which address to
assemble it, ``written`` makes the new file, ``replace_file`` puts it in place. ``undone`` gives back the original.

In: an ``Image``, code, patches. Out: the bytes of a file, or ``NotRewritable`` with its reason. All addresses are
link-time ones. May be touched: only ``files`` writes, and only the file it is told to. Files are not trusted, records
least of all. No code is generated here, and no process is looked at.

- ``refusals``: the files and loops that are not rewritten, each by its reason.
- ``room``: the addresses at which the new code and its zeroed memory will lie.
- ``growth``: the program header table grows in place; what lies behind it moves.
- ``writer``: the new file.
- ``frames``: unwind tables for the new code.
- ``sections``: what is not loaded: symbols, section headers, gdb's unwind table.
- ``record``: what was changed, and what each version is, kept in the file.
- ``undo``: the original of a rewritten file.
- ``original``: the code of a rewritten file as it was, for whoever looks at running programs.
- ``files``: puts a file in the place of another one, all at once.

Tested by: ``tests/unit/memopt/elf/rewriting`` (``growth``, ``room`` and ``sections`` by test_writer.py), and in
tests/property: ``test_hostile_rewriting.py`` with malformed files, ``test_rewritten_system.py`` with the system's.
"""
