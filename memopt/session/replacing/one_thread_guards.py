"""Guards that the program has one thread, by a variable of the C library.

Example: ``if (p) c[i] = x;`` becomes a store of ``p ? x : c[i]`` to every ``c[i]``. A second thread could write
``c[i]`` in between, so a version that accesses memory which the original may not access is for one thread only.

glibc sets ``__libc_single_threaded`` to 0 before it starts a second thread (glibc manual, "Single-Threaded"). The
guards read it at every entry. Where a program has its own copy of the variable (a copy relocation), they read the copy
as well: older libraries change only that one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

from memopt.elf.image import ElfError, Image
from memopt.elf.relocations import variable
from memopt.ir.linear import Linear
from memopt.ir.region import Cell, LiveIn, Region, Relation
from runtime.target.memory import Mapping

_NAME = "__libc_single_threaded"


def one_thread(region: Region, pid: int, maps: Iterable[Mapping]) -> Region:
    """``region`` with guards that the process ``pid`` has one thread; without new ones where its C library has no such
    variable. ``maps``: the mappings of the process."""
    live_ins = tuple(LiveIn(f"{_NAME}:{address:x}", Cell("", address, 1), 1) for address in _places(pid, maps))
    guards = tuple(Relation(Linear.symbol(x.symbol) - 1, True, "the program has one thread") for x in live_ins)
    return replace(region, live_ins=(*region.live_ins, *live_ins), guards=(*region.guards, *guards))


def _places(pid: int, maps: Iterable[Mapping]) -> list[int]:
    """The addresses of the variable in the program and in its C library."""
    try:
        program = os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return []
    found: dict[str, int] = {}
    for mapping in maps:
        wanted = mapping.path == program or os.path.basename(mapping.path).startswith("libc.so.6")
        if mapping.executable and wanted and mapping.path not in found:
            try:
                with Image(mapping.path) as image:
                    place = variable(image, _NAME)
                    if place is not None:
                        found[mapping.path] = place + image.load_bias(mapping.start, mapping.offset)
            except (ElfError, OSError):
                continue
    return list(found.values())
