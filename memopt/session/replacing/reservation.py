"""The stage reserve: room for the patch, and memory for a version in the process, given back if the loop is refused.

In: the region of the loop and the candidate plans. Out: a ``CodeCache``: pages for code within reach of a five-byte
jump from the header, for the frame, and for packed panels and the undo log.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from memopt.ir.reasons import Rejected
from memopt.session.replacing.process import Process

if TYPE_CHECKING:
    from memopt.ir.region import Region
    from memopt.lifting.lift import Lifted
    from memopt.session.replacing.site import LoopCode
    from memopt.x86.displacement import Displacement
    from passes.planning import Candidate
    from runtime.patching.code_cache import CodeCache

CODE_BYTES = 1 << 18
FRAME_BYTES = 1 << 15


def make_room(process: Process, code: LoopCode, lifted: Lifted) -> tuple[Lifted, Displacement]:
    """The region with the bytes at the header that the patch covers, and the instructions or the loop that move.

    This searches all of the text for branches to these bytes, so it is done only once there is something to gain.
    Raises Rejected (NO_ROOM, INDIRECT_JUMP).
    """
    from memopt.x86.displacement import displacement
    from runtime.patching.install import unpatched

    with process.timer.stage("reserve"), unpatched(process.pid) as text:
        displaced = displacement(text.read, code.site.graph, code.loop, code.site.text)
    return replace(lifted, region=replace(lifted.region, displaced=displaced.original)), displaced


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
        cache = CodeCache.create(tracee, region.header, CODE_BYTES, FRAME_BYTES, scratch)
        try:
            check_handler(tracee, cache.placement.scratch)
        except Rejected:
            cache.release(tracee)
            cache.close()
            raise
        return cache
