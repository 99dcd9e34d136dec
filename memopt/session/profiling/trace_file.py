"""``memopt profile --trace``: all accesses to memory are written to a file, besides being read by other watchers.

In: the traces of all threads, piece by piece. Out: a file that ``memopt trace`` shows as text
(memopt.traces.core.file).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy
from numpy.typing import NDArray

from memopt.traces.core.file import TraceWriter
from runtime.recording.recorder import Watcher
from runtime.recording.translation.code_map import Text
from runtime.recording.translation.unit import Unit


class TraceWatch:
    """The watcher that writes the traces to a file. ``error``: why the file is cut off, "" if it is not."""

    def __init__(self, path: str) -> None:
        """Create the file. Raises ``OSError``."""
        self._path, self.error = path, ""
        self._writer = TraceWriter(path)

    def begin(self) -> None:
        self._try(self._writer.begin)

    def forget(self, tids: Sequence[int]) -> None:
        """The file keeps what it has: blocks have numbers of their own in each program."""

    def take(self, tid: int, new: Sequence[Unit], nodes: NDArray[numpy.int64], words: NDArray[numpy.uint64]) -> None:
        blocks = [[(address, a.size, "RW"[not a.reads:1 + a.writes], a.repeated) for address, a in watched.accesses]
                  for unit in new for watched in unit.watched]
        if blocks:
            self._try(lambda: self._writer.code(blocks))
        if len(nodes):
            self._try(lambda: self._writer.nodes(tid, nodes))
        self._try(lambda: self._writer.words(tid, words))

    def close(self, texts: Iterable[Text]) -> None:
        self._try(lambda: self._writer.close(
            [(t.mapping.path, t.mapping.start, t.mapping.end, t.bias) for t in texts]))

    def _try(self, action: Callable[[], None]) -> None:
        if not self.error:
            try:
                action()
            except OSError as error:
                self.error = f"{self._path}: {error.strerror}; the trace in it is cut off"


class Watches:
    """Several watchers as one: each call goes to all of them, in order."""

    def __init__(self, *watches: Watcher) -> None:
        self._watches = watches

    def begin(self) -> None:
        for watch in self._watches:
            watch.begin()

    def forget(self, tids: Sequence[int]) -> None:
        for watch in self._watches:
            watch.forget(tids)

    def take(self, tid: int, new: Sequence[Unit], nodes: NDArray[numpy.int64], words: NDArray[numpy.uint64]) -> None:
        for watch in self._watches:
            watch.take(tid, new, nodes, words)
