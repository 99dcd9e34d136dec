"""Versions of one loop for different sizes: a new one is patched in, and where its guard fails the one before is asked.

The new version's way to the original code leads to the entry of the version before it instead, which goes to the
original code in its turn. While a new one is made, the one before is set aside: the original bytes are back at the
header, and its own pages stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING

from memopt.ir.reasons import Rejected

if TYPE_CHECKING:
    from memopt.ir.code import CompiledRegion
    from memopt.session.improving.decision import Decision

Attached = Callable[[], AbstractContextManager[None]]


def line(newest: Decision | None) -> Iterator[Decision]:
    """``newest`` and the versions behind it."""
    while newest is not None:
        yield newest
        newest = newest.behind


def followed_by(compiled: CompiledRegion, behind: CompiledRegion | None) -> bytes:
    """The code of a version whose guard fails to ``behind``."""
    from runtime.patching.install import jump_bytes

    if behind is None:
        return compiled.code
    first = jump_bytes(compiled.placement.code, behind.entry)  # over the displaced instructions, where all ways out end
    return first + compiled.code[len(first):]


def set_aside(pid: int, attached: Attached, decision: Decision) -> bool:
    """Put the original bytes back in place of the jump to a version, which stays; was that possible?"""
    from runtime.patching.install import find_installed, suspend
    from runtime.target.ptrace import TargetEnded
    from runtime.target.tracee import attach

    if decision.cache is None or decision.compiled is None:
        return False
    with suppress(Rejected, TargetEnded), attached(), attach(pid) as tracee:
        tracee.stop()
        for installed in find_installed(pid):
            if installed.placement.code == decision.cache.placement.code:
                suspend(tracee, installed)
                return True
    return False


def put_back(pid: int, attached: Attached, decision: Decision) -> bool:
    """The opposite of ``set_aside``."""
    from runtime.patching.install import install, jump
    from runtime.target.eligibility import check_threads
    from runtime.target.ptrace import TargetEnded
    from runtime.target.tracee import attach

    assert decision.cache is not None
    assert decision.compiled is not None
    region = decision.compiled.region
    with suppress(Rejected, TargetEnded), attached(), attach(pid) as tracee:
        tracee.stop()
        check_threads(pid)
        install(tracee, jump(region.header, decision.compiled.entry, region.displaced), decision.cache)
        return True
    return False
