"""Code for the blocks of a trace that run often: what ``memopt.traces.places`` does with their accesses, written out.

A block that goes on in the loops of the one before, or leaves or enters loops around it, is begun here, and each of its
accesses is a call of a routine (``memopt.traces.routine_code``). For all else kernels are called
(``memopt.traces.block_calls``). Invariant: what is in the tables behind an access is what the kernels would have left
there.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy
import numpy.typing

from memopt.traces.activity import (
    ACTIVE,
    BLOCK_NOW,
    CURRENT,
    LEVELS,
    LOOP_NOW,
    NODE_NOW,
    TIME,
)
from memopt.traces.block_calls import (
    AHEAD_AT,
    BEGIN,
    END,
    ENTER_AT,
    EXIT_AT,
    HEADERS,
    INTERPRET_AT,
    ITERATION_AT,
    LEAVE_AT,
    ROUTINES,
)
from memopt.traces.routine_code import (
    KINDS,
    LAST_AT,
    Routine,
    call,
    common,
    entry,
    far,
    kind_of,
    next_block,
    state,
    word,
)
from memopt.traces.shadow import (
    SHORT,
)
from memopt.traces.trace import EXTRA, AccessShape
from memopt.x86.assembler import assemble
from memopt.x86.instructions import Item, Label, Mem, instruction, jump

_BYTES = 16 << 20
_MOST_ACCESSES, _MOST_BYTES = 200, 64  # of a block that is written out, of an access
MOST_WORDS = _MOST_ACCESSES + 4  # of a block
_MOST_LEFT = 6  # loops inside another one that are told apart when they are left


class _Block:
    """The code of one block; ``name`` begins its labels."""

    def __init__(self, number: int, loop: int, header: bool, again: bool, accesses: Sequence[AccessShape],
                 loops: Sequence[tuple[int, int]]) -> None:
        self.name, self.number, self.loop, self.header, self.again = f"b{number}", number, loop, header, again
        self.accesses, self.loops = accesses, loops

    def label(self, *parts: object) -> str:
        return "_".join((self.name, *map(str, parts)))

    def items(self) -> Iterator[Item]:
        n, count = self.number, len(self.accesses)
        yield Label(self.name)
        yield instruction("lea", "rax", word(count + 3))
        yield instruction("cmp", "rax", entry(END))
        yield jump("interpret", "a")
        yield instruction("cmp", state(SHORT), 0)
        yield jump("interpret", "ne")
        if self.again:
            yield jump(self.label("begin"))
        else:
            yield instruction("mov", "rax", word(1))
            yield instruction("cmp", "rax", state(NODE_NOW))
            yield jump(self.label("begin"), "ne")
            yield instruction("mov", "rcx", entry(LAST_AT))
            yield instruction("cmp", "rax", Mem("rcx", displacement=16 * n))
            yield jump(self.label("begin"), "ne")
            yield instruction("mov", "r15", Mem("rcx", displacement=16 * n + 8))
            yield instruction("mov", "r8", state(LOOP_NOW))
            yield instruction("cmp", "r8", self.loop)
            yield jump(self.label("turn"), "ne")
            yield from self._begun()
            yield Label(self.label("turned"))
            yield instruction("mov", state(CURRENT), "r15")
            yield instruction("mov", state(BLOCK_NOW), n)
        yield Label(self.label("begun"))
        yield instruction("cmp", word(2, 4, 4), EXTRA - (1 << 16) << 16)
        yield jump(self.label("extra"), "ae")
        yield Label(self.label("accesses"))
        if self.accesses:
            yield instruction("mov", "r9d", count + 2)
            yield instruction("call", entry(AHEAD_AT))
        for index, shape in enumerate(self.accesses):
            yield instruction("mov", "rax", word(index + 2))
            yield instruction("lea", "r11", Mem("r15", displacement=index))
            yield instruction("call", entry(ROUTINES + KINDS.index(kind_of(shape))))
        yield instruction("add", "rbx", 8 * (count + 2))
        yield from next_block()
        yield Label(self.label("extra"))  # or another block, where there are no accesses
        yield instruction("cmp", word(2, 6, 2), EXTRA - (1 << 16))
        yield jump(self.label("accesses"), "ne")
        yield instruction("add", "rbx", 8)
        yield instruction("lea", "rax", word(count + 3))
        yield instruction("cmp", "rax", entry(END))
        yield jump(self.label("begun"), "be")
        yield instruction("add", "rbx", 16)
        yield jump("interpret")
        yield Label(self.label("begin"))
        yield instruction("mov", "ecx", n)
        yield instruction("mov", "r8", word(1))
        yield from call(BEGIN, False)
        yield jump("exit", "ne")
        yield instruction("mov", "r15", state(CURRENT))
        yield jump(self.label("begun"))
        if not self.again:
            yield from self._turn()

    def _begun(self) -> Iterator[Item]:
        """In the loop that goes on."""
        yield instruction("add", state(TIME), 1)
        if self.header:
            yield instruction("call", entry(ITERATION_AT))

    def _turn(self) -> Iterator[Item]:
        """The loop that goes on, in r8, is another one than that of the block; rax has the node."""
        begin = self.label("begin")
        parent = self.loops[self.loop][0] if self.loop >= 0 else -1
        own = self.loops[self.loop][1] if self.loop >= 0 else 0
        yield Label(self.label("turn"))
        if self.header:
            yield instruction("mov", "rcx", entry(HEADERS))
            yield instruction("cmp", "rax", Mem("rcx", displacement=16 * self.number))
            yield jump(begin, "ne")
            yield instruction("mov", "r9", Mem("rcx", displacement=16 * self.number + 8))
            yield instruction("cmp", "r8", parent)
            yield jump(self.label("enter"), "e")
        inside = self._inside(self.loop)[:_MOST_LEFT]
        beside = [loop for loop in self._inside(parent) if loop != self.loop and loop not in self._inside(self.loop)
                  ][:_MOST_LEFT] if self.header else []
        for loop in (*inside, *beside):
            yield instruction("mov", "ecx", self.loops[loop][1] - own + (loop in beside))
            yield instruction("cmp", "r8", loop)
            yield jump(self.label("leave" if loop in inside else "change"), "e")
        yield jump(begin)
        if inside:
            yield Label(self.label("leave"))
            yield instruction("call", entry(LEAVE_AT))
            yield instruction("mov", state(LOOP_NOW), self.loop)
            yield from self._begun()
            yield jump(self.label("turned"))
        if beside:
            yield Label(self.label("change"))
            yield instruction("call", entry(LEAVE_AT))
        if self.header:
            yield Label(self.label("enter"))
            yield instruction("cmp", state(ACTIVE), LEVELS)
            yield jump(begin, "ae")
            yield instruction("mov", "r8d", self.loop)
            yield instruction("call", entry(ENTER_AT))
            yield jump(self.label("turned"))

    def _inside(self, loop: int) -> list[int]:
        """The loops inside ``loop``, from the outermost on."""
        def around(other: int) -> bool:
            while other >= 0 and other != loop:
                other = self.loops[other][0]
            return other == loop
        return [] if loop < 0 else [
            n for n, (parent, _) in enumerate(self.loops[loop + 1:], loop + 1) if around(parent)]


class BlockCode:
    """Memory that code is written to by one mapping and run by another, for one directory. Raises ``OSError`` where the
    system allows none."""

    def __init__(self, directory: numpy.typing.NDArray[numpy.int64]) -> None:
        handle = os.memfd_create("memopt-blocks")
        try:
            os.ftruncate(handle, _BYTES)
            self._writable = mmap.mmap(handle, _BYTES)
            self._running = mmap.mmap(handle, _BYTES, prot=mmap.PROT_READ | mmap.PROT_EXEC)
        finally:
            os.close(handle)
        self._start = numpy.frombuffer(self._running, numpy.uint8).ctypes.data
        self._next = 0
        labels = self._write(*_common_code())
        self.interpret = labels["interpret"]
        directory[[INTERPRET_AT, EXIT_AT, LEAVE_AT, ENTER_AT, ITERATION_AT, AHEAD_AT]] = [
            labels[name] for name in ("interpret", "exit", "leave", "enter", "iteration", "ahead")]
        directory[ROUTINES:] = [labels[Routine(*kind).name] for kind in KINDS]
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
        self.run: Callable[[int, int], int] = kind(labels["run"])
        """With the address of the directory and of a word: what there must be more of; POSITION says where it is."""

    def add(self, blocks: Sequence[tuple[int, int, bool, bool, Sequence[AccessShape]]],
            loops: Sequence[tuple[int, int]]) -> dict[int, int]:
        """Where the code of each of the blocks (number, loop, header, whether it enters its loops anew, accesses) is;
        not of those that are too large or too unusual. ``loops``: around each (-1: none), depth."""
        fit = [block for block in blocks if len(block[4]) <= _MOST_ACCESSES and not any(
            a.repeated or a.size > _MOST_BYTES for a in block[4])]
        items: list[Item] = []
        for block in fit:
            items += _Block(*block, loops).items()
        items += [*far("interpret", INTERPRET_AT), *far("exit", EXIT_AT)]
        labels = self._write(*_assembled(items)) if fit else {}
        return {block[0]: labels[f"b{block[0]}"] for block in fit} if labels else {}

    def _write(self, code: bytes, labels: Mapping[str, int]) -> dict[str, int]:
        """Code that may stand anywhere; where its labels are now, none where there is no room."""
        start = self._next
        if start + len(code) > _BYTES:
            return {}
        self._writable[start:start + len(code)] = code
        self._next += -(-len(code) // 16) * 16
        return {name: self._start + start + offset for name, offset in labels.items()}


@functools.cache
def _common_code() -> tuple[bytes, Mapping[str, int]]:
    return _assembled(common())


def _assembled(items: Iterable[Item]) -> tuple[bytes, Mapping[str, int]]:
    made = assemble(tuple(items), 0)
    return made.code, made.labels
