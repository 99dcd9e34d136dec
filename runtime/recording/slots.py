"""The places of threads in memopt's memory of a process: a page, a stack of calls and a trace for each thread.

Example: a program makes 200 threads, one after the other. Each thread ends before the next one begins, so all of them
have the same slot, and a limit holds for those that live at once.

In: where the slots lie. Out: a ``Slot`` for a new thread. A slot is free again when its thread has ended.

Invariant: no word of a trace is overwritten before the watcher has read it. The watcher may still read the last words
of a thread that has ended (``Watcher.take``). So the next thread with its slot begins in the other half of the trace.
"""

from __future__ import annotations

from copy import copy as shallow_copy

from memopt.ir.frozen import dataclass
from memopt.ir.reasons import Reason, Rejected
from runtime.recording.translation.layout import TRACE_BYTES, TRACE_START
from runtime.target.memory import PAGE

MOST_THREADS = 128  # that live at once, besides the first one
_CALLS_BYTES = 64 << 20
_CALLS_BYTES_OF_THREAD = 8 << 20
SLOTS_BYTES = PAGE + _CALLS_BYTES + MOST_THREADS * (_CALLS_BYTES_OF_THREAD + PAGE)
TRACES_BYTES = (MOST_THREADS + 2) * TRACE_BYTES


@dataclass(frozen=True, slots=True)
class Slot:
    """``state``: address of the page; the stack of calls lies behind it. ``trace``: where the trace begins; 0 for none.
    """

    state: int
    trace: int


class Slots:
    """The slots of a process. ``start``: address of ``SLOTS_BYTES``. ``traces``: of ``TRACES_BYTES``; 0 for none."""

    def __init__(self, start: int, traces: int) -> None:
        first = -(-traces // TRACE_BYTES) * TRACE_BYTES + TRACE_START if traces else 0
        states = (start, *(start + PAGE + _CALLS_BYTES + index * (_CALLS_BYTES_OF_THREAD + PAGE)
                           for index in range(MOST_THREADS)))
        self._free = [Slot(state, first + index * TRACE_BYTES if traces else 0)
                      for index, state in reversed(list(enumerate(states)))]

    def take(self) -> Slot:
        """A free slot, the one that was freed last. Its page has the words of the thread before. Raises
        Rejected(NO_MEMORY) if there is none.
        """
        if not self._free:
            raise Rejected(Reason.NO_MEMORY, f"more than {MOST_THREADS} threads at once")
        return self._free.pop()

    def give_back(self, slot: Slot) -> None:
        """Frees the slot of a thread that has ended. ``slot.trace``: in the half that it has not written last."""
        self._free.append(slot)

    def forked(self) -> Slots:
        """The slots of a forked child."""
        child = shallow_copy(self)
        child._free = list(self._free)
        return child
