"""Guards that the program has one thread, by a variable of the C library.

Example: in ``for (i...) { ready = i; for (j...) c[i][j] = ...; }`` another thread may take the rows below ``ready``
for complete: on x86 a plain store is a release store. A version stores in another order, so it is for one thread only
(memopt.ir.region.Region.publishes).

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
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Cell, LiveIn, Region, Relation
from runtime.target.memory import Mapping

_NAME = "__libc_single_threaded"


def one_thread(region: Region, pid: int, maps: Iterable[Mapping]) -> Region:
    """``region`` with guards that the process ``pid`` has one thread. ``maps``: the mappings of the process. Raises
    Rejected(THREADS) where nothing tells it at an entry: the C library has no such variable, or it is not found in a
    static program without symbols."""
    places = _places(pid, maps)
    if not places:
        raise Rejected(Reason.THREADS, "nothing tells at an entry whether the program has several, which could see the "
                                       "order of this loop's stores")
    live_ins = tuple(LiveIn(f"{_NAME}:{address:x}", Cell("", address, 1), 1) for address in places)
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
