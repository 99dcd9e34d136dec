"""The mapped executables of the program and of each process that it makes, at the time of a sample.

Example: a sample at 0x7f10a2c lies in libm.so.6, which is mapped from 0x7f10000 on: its link-time address is 0xa2c. In:
events of mmap, execve, fork and exit. Out: a ``MappedCode`` for an address. Mappings are noted while they last: later
something else may lie there. Nothing slow is imported here: the program waits for it.
"""

from __future__ import annotations

import bisect
import functools
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from memopt.elf.image import ElfError, Image
from memopt.ir.frozen import dataclass
from memopt.ir.reasons import Rejected
from runtime.sampling.samples import Ended, Executed, Forked, Mapped, News
from runtime.target.memory import mappings
from runtime.target.tracee import status_field


@dataclass(frozen=True, slots=True, order=True)
class MappedCode:
    """The run-time addresses ``[start, end)`` hold code of the file at ``path``; link-time addresses plus ``bias`` are
    run-time addresses."""

    start: int
    end: int
    path: str
    bias: int


class Located(NamedTuple):
    """Where a thread was sampled: a link-time address of the file at ``path``, or a run-time address in no file."""

    tid: int
    path: str | None
    address: int


class Images:
    """The code mappings of one process. ``first``: the path of the program itself. ``parent``: the process that has
    made it, 0 where that is not known. ``places``: in order of addresses, without overlap."""

    def __init__(self, pid: int, parent: int = 0, first: str = "", places: tuple[MappedCode, ...] = ()) -> None:
        self.pid, self.parent, self.first, self.places = pid, parent, first, places
        self.threads = 1
        self._covered: list[tuple[int, int]] = []  # when it was looked at, code in no file too

    def map(self, mapped: Mapped) -> None:
        """Note a new mapping, which takes the place of older ones where they overlap."""
        around = [replace(p, start=start, end=end) for p in self.places
                  for start, end in ((p.start, min(p.end, mapped.start)), (max(p.start, mapped.end), p.end))
                  if start < end]
        bias = _bias(mapped)
        if bias is not None:
            bisect.insort(around, MappedCode(mapped.start, mapped.end, mapped.path, bias))
            self.first = self.first or mapped.path
        self.places = tuple(around)

    def forget(self) -> None:
        """Forget all mappings: they are not known any more."""
        self.places, self._covered = (), []

    def see(self, address: int) -> None:
        """Read the mappings of the process now, if what lies at ``address`` is not known."""
        if any(start <= address < end for start, end in self._covered):
            return
        with suppress(Rejected):  # it has ended
            maps = [m for m in mappings(self.pid) if m.executable]
            self._covered = [(m.start, m.end) for m in maps]
            self.parent = self.parent or int(status_field(self.pid, "PPid") or 0)
            for m in maps:
                self.map(Mapped(self.pid, m.start, m.end, m.offset, m.inode, m.path))

    def place(self, address: int) -> MappedCode | None:
        """The mapping at a run-time address; None where no code of a file is known there."""
        index = bisect.bisect_right(self.places, address, key=lambda p: p.start) - 1
        return self.places[index] if index >= 0 and address < self.places[index].end else None


class Processes:
    """The images of the program, process ``pid``, and of the processes that it makes."""

    def __init__(self, pid: int) -> None:
        self.program = Images(pid)
        self._of_children: dict[int, Images] = {}

    def of(self, child: int) -> Images:
        """The images of the process ``child``; 0 stands for the program."""
        return self._of_children.setdefault(child, Images(child)) if child else self.program

    def learn(self, news: News) -> None:
        images = self.of(0 if news.pid == self.program.pid else news.pid)
        match news:
            case Mapped():
                images.map(news)
            case Executed():
                images.first = ""
                images.forget()
            case Forked(pid, parent) if pid == parent:
                images.threads += 1
            case Forked(pid, parent):
                copied = self.of(0 if parent == self.program.pid else parent)
                self._of_children[pid] = Images(pid, parent, copied.first, copied.places)
            case Ended(pid):
                images.threads -= 1
                if images.threads <= 0:
                    self._of_children.pop(pid, None)

    def doubt(self) -> None:
        """Forget all mappings, because some events were lost."""
        for images in (self.program, *self._of_children.values()):
            images.forget()


def _bias(mapped: Mapped) -> int | None:
    """The bias of a mapping; None where it holds no code of a file."""
    if mapped.path.startswith("/") and not mapped.path.startswith("//"):
        with suppress(ElfError, OSError):
            return mapped.start + _bias_at_0(mapped.path, mapped.inode, mapped.offset)
    return None


@functools.lru_cache(maxsize=4096)
def _bias_at_0(path: str, _inode: int, offset: int) -> int:
    """The bias if the byte ``offset`` of the file were mapped at 0. ``_inode`` tells files apart that have the same
    path one after the other."""
    with Image(path) as image:
        return image.load_bias(0, offset)
