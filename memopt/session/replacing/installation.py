"""The stage install: code into the cache, then a five-byte jump to it at the loop header, in one write.

The process is looked at once more in the stop in which the jump is written: it may have started a thread, set a handler
or confined itself since.

In: the validated version, its memory, the displaced instructions. Out: the ``Installed`` that is watched in service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.session.measuring.verdict import Service
from memopt.session.replacing.decision import Installed
from memopt.session.replacing.history import LOOKS, History
from memopt.session.replacing.process import Process
from memopt.session.replacing.versions import followed_by

if TYPE_CHECKING:
    from memopt.ir.code import CompiledRegion
    from memopt.x86.displacement import Displacement
    from runtime.patching.code_cache import CodeCache
    from runtime.target.tracee import Tracee


def install(process: Process, compiled: CompiledRegion, cache: CodeCache, displaced: Displacement,
            behind: Installed | None, chunk: int | None) -> None:
    """Put ``compiled`` in service. ``behind``: the version that is asked where its guard fails. ``chunk``: iterations
    that it may run before it goes through its guards again. Raises Rejected where somebody stands in the bytes under
    the patch, the code is no longer what was lifted, or the process is not eligible any more."""
    from runtime.patching.install import install as patch
    from runtime.patching.install import jump
    from runtime.target import contexts
    from runtime.target.eligibility import check_process
    from runtime.target.sigsegv import check_handler, may_suspend

    def check(tracee: Tracee) -> None:
        process.verify()
        check_process(process.pid)
        check_handler(tracee, cache.placement.scratch)

    contexts.get_ready(process.pid)
    with process.timer.stage("install"):
        region = compiled.region
        cache.clear_statistics()
        with process.traced() as tracee:
            cache.write_code(followed_by(compiled, None if behind is None else behind.compiled), tracee)
            if chunk is not None:
                cache.set_chunk(tracee.memory, chunk)
            tracee.stop()
            patch(tracee, jump(region.header, compiled.entry, region.displaced), cache,
                  moved=displaced.places(compiled.placement.code), code=region.code, check=lambda: check(tracee),
                  interrupted=lambda: may_suspend(tracee, cache.placement.scratch))


def watched(compiled: CompiledRegion, history: History) -> Service:
    """The watch over a version that has just been put in service."""
    region, measured = compiled.region, history.findings.measurement
    return Service(measured.original if measured is not None and measured.even else None,
                   speedup=measured.speedup if measured is not None else None,
                   period=region.period,
                   again=len(history.earlier.get(region.header, ())) < LOOKS - 1)
