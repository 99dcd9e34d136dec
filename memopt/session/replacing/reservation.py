"""The stage reserve: room for the patch, and memory for a version in the process, given back if the loop is refused.

In: the region of the loop and the candidate plans. Out: a ``CodeCache``: pages for code within reach of a five-byte
jump from the header, for the frame, and for packed panels and the undo log.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from memopt.ir.reasons import Reason, Rejected
from memopt.session.replacing.process import Process

if TYPE_CHECKING:
    from memopt.elf.image import Image
    from memopt.ir.region import Region
    from memopt.lifting.lift import Lifted
    from memopt.session.replacing.site import LoopCode, Site
    from memopt.x86.code_pointers import Part, Surroundings
    from memopt.x86.displacement import Displacement
    from passes.planning import Candidate
    from runtime.patching.code_cache import CodeCache

CODE_BYTES = 1 << 18
FRAME_BYTES = 1 << 15
MOST_DATA = 64 << 20  # bytes that are searched for tables


def make_room(process: Process, code: LoopCode, lifted: Lifted) -> tuple[Lifted, Displacement]:
    """The region with the bytes at the header that the patch covers, and the instructions or the loop that move.

    This searches all of the text for branches to these bytes, so it is done only once there is something to gain. A
    loop moves only in a program that cannot change its code. Raises Rejected (NO_ROOM, INDIRECT_JUMP).
    """
    from memopt.session.replacing.constant_text import may_change_its_text
    from memopt.x86.displacement import displacement
    from runtime.patching.install import unpatched

    with process.timer.stage("reserve"), unpatched(process.pid) as text:
        displaced = displacement(text.read, code.site.graph, code.loop, code.site.text,
                                 surroundings(code.site, text.read_some, process.pid))
    if displaced.blocks and may_change_its_text(process.pid):
        raise Rejected(Reason.NO_ROOM, "the whole loop would have to move, and the program may change its code")
    return replace(lifted, region=replace(lifted.region, displaced=displaced.original)), displaced


def surroundings(site: Site, read: Callable[[int, int], bytes], pid: int) -> Surroundings:
    """From where the function of ``site`` may be entered in its middle. ``read``: reads the original
    code, as far as it is mapped."""
    from memopt.cfg.jump_tables import switches
    from memopt.elf.image import ElfError, Image
    from memopt.elf.landing import landing_pads
    from memopt.x86.code_pointers import Surroundings

    pads: frozenset[int] = frozenset()
    closed = False
    if site.extent is not None:
        with suppress(ElfError, OSError), Image(site.path) as image:
            found = landing_pads(image, site.extent[0] - site.bias)
            pads = frozenset(pad.start + site.bias for pad in found)
            closed = _is_closed(site, site.extent, read, image)
    jumps = switches(site.graph, read, site.extent or site.text)
    return Surroundings(closed, site.extent, frozenset(jumps), pads, functools.partial(_data, site, read, pid))


def _is_closed(site: Site, extent: tuple[int, int], read: Callable[[int, int], bytes], image: Image) -> bool:
    """Whether the whole function is known, with its parts elsewhere (``f.cold``), and none of it jumps indirectly."""
    from memopt.elf.symbols import Symbols
    from memopt.ir.graph import Kind
    from memopt.x86.code_pointers import has_indirect_jump

    graph = site.graph
    if graph.entry != extent[0] or any(block.kind is Kind.INDIRECT for block in graph.blocks.values()):
        return False
    parts = {extent}
    for target in {s for block in graph.blocks.values() for s in block.successors if s not in graph.blocks}:
        if site.text[0] <= target < site.text[1]:  # else it is an exit from the copy of an inlined function
            part = Symbols(image).function_at(target - site.bias)
            if part is None:
                return False
            parts.add((part.start + site.bias, part.end + site.bias))
    return not any(has_indirect_jump(read(start, end - start)) for start, end in parts)


def _data(site: Site, read: Callable[[int, int], bytes], pid: int) -> tuple[Part, ...]:
    """The memory that may hold tables and addresses of labels: that of the file; all private memory if there is none.

    Raises Rejected(INDIRECT_JUMP) where that is too much to search."""
    from memopt.x86.code_pointers import Part
    from runtime.target.memory import mappings

    near = [m for m in mappings(pid) if m.readable and not m.shared and m.path == site.path
            and not m.path.startswith("[v") and (m.start, m.end) != site.text]
    if sum(m.end - m.start for m in near) > MOST_DATA:
        raise Rejected(Reason.INDIRECT_JUMP, "its tables may be anywhere in a large memory")
    return tuple(Part(m.start, content) for m in near if (content := read(m.start, m.end - m.start)))


@contextmanager
def reserved(process: Process, region: Region, candidates: tuple[Candidate, ...]) -> Iterator[CodeCache]:
    """Memory enough for each candidate. It stays in the process when the context is left without an exception."""
    cache = _reserve(process, region, candidates)
    try:
        yield cache
    except Exception:
        give_back(process, cache)
        cache.close()
        raise


def give_back(process: Process, cache: CodeCache) -> int | None:
    """Take a version out of the process, with as much of its memory as can be; the bytes of it that stay. None where
    the process cannot be reached any more.

    A stage may fail after the patch was written: then the original code is restored first. A version that was ever in
    service leaves its pages behind (runtime/patching/install.py). Memory of one that never was goes; where the process
    may not be made to call any more (seccomp), it stays.
    """
    from runtime.patching.install import find_versions, remove
    from runtime.target.ptrace import TargetEnded

    stays: int | None = None
    with suppress(Rejected, TargetEnded), process.stopped() as tracee:
        known = [x for x in find_versions(process.pid) if x.placement.code == cache.placement.code]
        stays = sum(remove(tracee, version).bytes for version in known)
        if not known:
            with suppress(Rejected):
                cache.release(tracee)
    return stays


def _reserve(process: Process, region: Region, candidates: tuple[Candidate, ...]) -> CodeCache:
    from passes.version.generate import undo_log_offset
    from passes.version.kernel import nest_scratch_bytes
    from passes.version.rollback import undo_log_bytes
    from runtime.patching.code_cache import CodeCache
    from runtime.target.sigsegv import check_handler

    with process.timer.stage("reserve"), process.eligible() as tracee:
        scratch = undo_log_offset(max(4096, *(nest_scratch_bytes(parts, plan) for parts, plan in candidates)))
        scratch += undo_log_bytes(region)
        cache = (CodeCache.create(tracee, region.header, CODE_BYTES, FRAME_BYTES + scratch).as_in_a_file(FRAME_BYTES)
                 if process.movable else CodeCache.create(tracee, region.header, CODE_BYTES, FRAME_BYTES, scratch))
        try:
            check_handler(tracee, cache.placement.scratch)
        except Rejected:
            cache.release(tracee)
            cache.close()
            raise
        return cache
