"""Several versions of one loop, for different sizes: each falls back on the one that was installed before it.

Example: a version for n = 512 is installed, then the loop comes with n = 640. A second version is patched in at the
header; where its guard fails it jumps to the entry of the first, whose guard leads to the original code. While the
second is made, the first is set aside: the original bytes are back at the header, and its own pages stay.

Each version has a lock, which one entry takes and gives back when it leaves. Where a signal handler leaves the version
by longjmp instead, ``free_lock`` gives it back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from memopt.ir.reasons import Rejected
from memopt.session.replacing.process import Process

if TYPE_CHECKING:
    from memopt.ir.code import CompiledRegion
    from memopt.session.replacing.decision import Installed


def line(newest: Installed | None) -> Iterator[Installed]:
    """``newest`` and the versions behind it, in the order in which they are asked."""
    while newest is not None:
        yield newest
        newest = newest.behind


def followed_by(compiled: CompiledRegion, behind: CompiledRegion | None) -> bytes:
    """The code of ``compiled``, with a jump to the entry of ``behind`` where its guard fails."""
    from runtime.patching.install import jump_bytes

    if behind is None:
        return compiled.code
    first = jump_bytes(compiled.placement.code, behind.entry)  # over the displaced instructions, where all ways out end
    return first + compiled.code[len(first):]


def set_aside(process: Process, version: Installed) -> bool:
    """Put the original bytes back in place of the jump to ``version``, whose pages stay; False where that is not
    possible.
    """
    from runtime.patching.install import find_installed, suspend
    from runtime.target.ptrace import TargetEnded

    if version.moved:
        return False
    with suppress(Rejected, TargetEnded), process.stopped() as tracee:
        for installed in find_installed(process.pid):
            if installed.placement.code == version.cache.placement.code:
                suspend(tracee, installed)
                return True
    return False


def lock_held(process: Process, version: Installed) -> bool:
    """Whether somebody has the lock of ``version``; the process is not stopped."""
    from runtime.patching.frame_lock import held
    from runtime.target.memory import Memory

    with suppress(Rejected), closing(Memory(process.pid)) as memory:
        return held(memory, version.cache.placement)
    return False


def free_lock(process: Process, version: Installed) -> bool:
    """Give back the lock of ``version`` if nobody can come back to do so; whether it is free now."""
    from runtime.patching.frame_lock import give_back
    from runtime.target.contexts import get_ready
    from runtime.target.ptrace import TargetEnded

    get_ready(process.pid)
    with suppress(Rejected, TargetEnded), process.stopped() as tracee:
        return give_back(tracee, version.cache.placement)
    return False


def put_back(process: Process, version: Installed) -> bool:
    """Undo ``set_aside``: the jump to ``version`` is written again; False where that is not possible."""
    from runtime.patching.install import install, jump
    from runtime.target.eligibility import check_in_service
    from runtime.target.ptrace import TargetEnded

    region = version.compiled.region
    with suppress(Rejected, TargetEnded), process.stopped() as tracee:
        install(tracee, jump(region.header, version.compiled.entry, region.displaced), version.cache,
                code=region.code, check=lambda: check_in_service(process.pid))
        return True
    return False
