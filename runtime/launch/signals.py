"""The signal state of memopt and of the program it starts.

Part of what is imported before the program is started: nothing slow, no dataclasses.

Sources: sigaction(2), pthread_sigmask(3), execve(2).
"""

from __future__ import annotations

import signal

UNBLOCKABLE = frozenset({signal.SIGKILL, signal.SIGSTOP})
BLOCKED = frozenset(signal.valid_signals()) - UNBLOCKABLE

# Python ignores these from its start; what they were before cannot be known. Default is what shells leave.
_PYTHON_IGNORES = (signal.SIGPIPE, signal.SIGXFSZ)


class SignalState:
    """The signal state memopt was started with, to be given to the program."""

    __slots__ = ("child_ignored", "mask")

    def __init__(self, mask: frozenset[int], child_ignored: bool) -> None:
        self.mask, self.child_ignored = mask, child_ignored

    @staticmethod
    def hold() -> SignalState:
        """Block every signal and remember the state before. Main thread only, before any other thread is made."""
        mask = frozenset(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED)))
        # An ignored SIGCHLD would make the kernel throw the program's exit status away.
        child_ignored = signal.signal(signal.SIGCHLD, signal.SIG_DFL) == signal.SIG_IGN
        return SignalState(mask, child_ignored)

    def give_to_program(self) -> None:
        """In the process about to execve: dispositions and mask as memopt inherited them."""
        for number in _PYTHON_IGNORES:
            signal.signal(number, signal.SIG_DFL)
        for number in signal.valid_signals():
            # A handler of Python's would swallow what arrives between here and execve.
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        self.release()

    def release(self) -> None:
        """Undo ``hold``."""
        if self.child_ignored:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)
