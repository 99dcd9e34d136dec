"""The lock of a version's frame, given back when its holder has left for good.

Example: a time limit ends a matrix product: the handler of SIGALRM leaves the version by siglongjmp(3). Nobody will
come back to set ``busy`` to 0, so every later entry finds the frame taken and runs the original code.

In: a stopped ``Tracee``, the placement of a version. Out: whether the lock is free now.

Why nobody loses the frame while it is in use: whoever holds the lock goes on in the version's code pages, or calls a
function that returns into them. So a thread stands there, or some word in memory has an address in them
(runtime/target/contexts.py). If neither is the case, in a stop of the whole process, nobody can come back. A thread
that sleeps and is not stopped cannot change that: it can only find the lock taken and run the original.

The search is conservative: a handler on a stack of its own (sigaltstack) that left by longjmp has left its signal frame
there, which counts until the next signal writes over it. The lock is given back then.
"""

from __future__ import annotations

from memopt.ir.code import FRAME_BUSY, FRAME_HOLDER, FRAME_RETIRED, Placement
from runtime.patching.install import find_versions
from runtime.target import contexts
from runtime.target.memory import Memory
from runtime.target.tracee import Tracee


def held(memory: Memory, placement: Placement) -> bool:
    """Whether somebody has the lock. Nothing need be stopped. Raises ``Rejected`` if the process has ended."""
    return memory.word(placement.frame + FRAME_BUSY) not in (0, FRAME_RETIRED)


def give_back(tracee: Tracee, placement: Placement) -> bool:
    """Free the lock if its holder can never come back; whether it is free now.

    Precondition: the target is stopped, and ``contexts.get_ready`` was called. Raises ``Rejected(NO_ROOM)`` where there
    is too much memory to be sure.
    """
    if not held(tracee.memory, placement):
        return True
    low, high = placement.code, placement.code + placement.code_size
    if any(low <= place < high for place in contexts.standing(tracee)):
        return False
    own = [(place.scratch, place.scratch + place.scratch_size)
           for place in (version.placement for version in find_versions(tracee.pid)) if place.scratch_size]
    if contexts.suspended(tracee, low, high, ignored=own, everywhere=True):
        return False
    for word in (FRAME_HOLDER, FRAME_BUSY):
        tracee.memory.write(placement.frame + word, bytes(8))
    return True
