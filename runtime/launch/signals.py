"""Signal mask and dispositions: memopt blocks all signals for itself and starts the program with the ones it inherited.

In: the signal state that memopt was started with. Out: the same state in the program. It is exact but for the signals
that Python ignores from its start (SIGPIPE, SIGXFSZ): their earlier disposition cannot be known, so the program gets
the default.

This module is imported before the program starts and so delays it: it imports nothing slow, and no dataclasses.

Sources: sigaction(2), pthread_sigmask(3), execve(2).
"""

from __future__ import annotations

import signal

UNBLOCKABLE = frozenset({signal.SIGKILL, signal.SIGSTOP})
BLOCKED = frozenset(signal.valid_signals()) - UNBLOCKABLE

# Python ignores these from its start, and their earlier disposition cannot be known. Shells leave them at default.
_PYTHON_IGNORES = (signal.SIGPIPE, signal.SIGXFSZ)


class SignalState:
    """The signal state that memopt was started with and the program is to get.

    ``mask``: the blocked signals. ``child_ignored``: SIGCHLD was ignored. The other dispositions stay as they are in
    memopt and are inherited through fork and execve.
    """

    __slots__ = ("child_ignored", "mask")

    def __init__(self, mask: frozenset[int], child_ignored: bool) -> None:
        self.mask, self.child_ignored = mask, child_ignored

    @staticmethod
    def hold() -> SignalState:
        """Block every signal that can be blocked; the result is the state before.

        Call it from the main thread, before any other thread is made.
        """
        mask = frozenset(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED)))
        # An ignored SIGCHLD would make the kernel throw the program's exit status away.
        child_ignored = signal.signal(signal.SIGCHLD, signal.SIG_DFL) == signal.SIG_IGN
        return SignalState(mask, child_ignored)

    def give_to_program(self) -> None:
        """Restore dispositions and mask as memopt inherited them; called in the process that is about to execve."""
        for number in _PYTHON_IGNORES:
            signal.signal(number, signal.SIG_DFL)
        for number in signal.valid_signals():
            # A Python handler would swallow a signal that arrives between here and execve.
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        self.release()

    def release(self) -> None:
        """Undo ``hold``: SIGCHLD and the mask are as before."""
        if self.child_ignored:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)
