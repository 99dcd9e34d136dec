"""Routines that the code of blocks (``memopt.traces.block_code``) has in common: loops and accesses.

In rbp lies the directory (``memopt.traces.block_calls``), in r12 the state, in r13 the table of active loops, in r14
the cells of pages met lately; rbx is the word at which the block begins, r15 the number of its first site. The usual
case is done here: an access is one place or few, of a page that was met lately, and what it depends on is what it
depended on before, in the same iteration of the same loop relative to the one that goes on. For all else kernels are
called.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from memopt.traces.activity import (
    ACTIVE,
    BEFORE,
    BEGAN,
    ENTERED,
    FAR,
    ITERATION,
    LOOP,
    LOOP_NOW,
    NEVER,
    NUMBER,
    ROW,
    TIME,
    TOLD_BEFORE,
)
from memopt.traces.block_calls import (
    CALLS,
    CELL_NOW,
    CELLS_AT,
    DISPATCH,
    END,
    FIND,
    INTERPRET,
    LAST_AHEAD,
    LOOK_AT,
    NEAR,
    POSITION,
    RAISED,
    READ_FURTHER,
    RETURNED,
    ROUTINES,
    SITE_NOW,
    WRITE_FURTHER,
)
from memopt.traces.carriers import (
    KNOWN,
    KNOWN_CARRIER,
    KNOWN_COUNT,
    KNOWN_HIGH,
    KNOWN_KEY,
    KNOWN_LOW,
    KNOWN_OWN,
    RAW,
    WAR,
    WAR_OF_FIRST,
    WAW,
)
from memopt.traces.places import CACHE, Tables
from memopt.traces.shadow import (
    CELL,
    FIRST,
    LAST,
    MAY_READ,
    NEAR_STEP,
    OF_CHUNK,
    READERS,
    RECENT,
    SECOND_FIRST,
    SECOND_LAST,
    SITES,
    TIMES,
    WRITER,
    WRITTEN,
)
from memopt.traces.trace import PAGE, AccessShape
from memopt.x86.instructions import Bytes, Instruction, Item, Label, Mem, instruction, jump

_STATE, _ACTIVE_AT, _RINGS, _CHUNKS_AT, _FOUND_AT, LAST_AT, _KNOWN_AT, _RECENT_AT = map(Tables._fields.index, (
    "state", "active", "rings", "chunks", "found", "last", "known", "recent"))
_JUMP_RAX, _JUMP_TABLE = Bytes(b"\xff\xe0"), Bytes(b"\xff\x24\xc1")  # jmp rax; jmp [rcx + 8 * rax]
_AHEAD = 64  # words
_SAVED = ("rbx", "rbp", "r12", "r13", "r14", "r15")


def entry(number: int) -> Mem:
    return Mem("rbp", displacement=8 * number)


def state(number: int) -> Mem:
    return Mem("r12", displacement=8 * number)


def cell(column: int, size: int = 8, upper: bool = False) -> Mem:
    return Mem("rax", displacement=8 * column + 4 * upper, size=size)


def word(number: int, at: int = 0, size: int = 8) -> Mem:
    return Mem("rbx", displacement=8 * number + at, size=size)


def call(function: int, inside: bool = True) -> Iterator[Item]:
    """Arguments but the first are in rcx, r8 and r9; whether more is needed is in the flags then. ``inside``: of a
    routine, where the stack is aligned otherwise."""
    yield instruction("lea", "rdi", entry(RETURNED))
    yield instruction("lea", "rsi", entry(RAISED))
    yield instruction("mov", "rdx", "rbp")
    if inside:
        yield instruction("sub", "rsp", 8)
    yield instruction("call", entry(CALLS + function))
    if inside:
        yield instruction("add", "rsp", 8)
    yield instruction("cmp", entry(RETURNED), 0)


def next_block() -> Iterator[Item]:
    """rbx is where it begins."""
    yield instruction("cmp", "rbx", entry(END))
    yield jump("interpret", "ae")
    yield instruction("cmp", word(0, 4, 4), -1 << 16)  # BLOCK, and a number below 1 << 32
    yield jump("interpret", "ne")
    yield instruction("mov", "eax", word(0, size=4))
    yield instruction("mov", "rcx", entry(DISPATCH))
    yield _JUMP_TABLE


def far(label: str, number: int) -> Iterator[Item]:
    yield Label(label)
    yield instruction("mov", "rax", entry(number))
    yield _JUMP_RAX


def _leave() -> Iterator[Item]:
    """activity._leave: ecx of the innermost loops, one at least. r9 and r15 stay."""
    yield Label("leave")
    yield instruction("mov", "rax", state(ACTIVE))
    yield instruction("sub", "rax", "rcx")
    yield instruction("mov", state(ACTIVE), "rax")
    yield instruction("shl", "rax", (8 * ROW).bit_length() - 1)
    yield instruction("add", "rax", "r13")
    yield instruction("movabs", "rdx", NEVER)
    yield Label("leave_next")
    for column in (ENTERED, BEGAN, *range(BEFORE, BEFORE + TOLD_BEFORE)):
        yield instruction("mov", cell(column), "rdx")
    yield instruction("add", "rax", 8 * ROW)
    yield instruction("sub", "ecx", 1)
    yield jump("leave_next", "ne")
    yield Instruction("ret")


def _enter() -> Iterator[Item]:
    """activity._enter: the loop in r8, whose number is in r9; as begin_block, counts the time."""
    yield Label("enter")
    yield instruction("mov", "rcx", state(ACTIVE))
    yield instruction("lea", "rax", Mem("rcx", displacement=1))
    yield instruction("mov", state(ACTIVE), "rax")
    yield instruction("mov", "rax", "rcx")
    yield instruction("shl", "rax", (8 * ROW).bit_length() - 1)
    yield instruction("add", "rax", "r13")
    yield instruction("mov", "rdx", state(TIME))
    yield instruction("add", "rdx", 1)
    yield instruction("mov", state(TIME), "rdx")
    yield instruction("mov", cell(LOOP), "r8")
    yield instruction("mov", cell(ENTERED), "rdx")
    yield instruction("mov", cell(BEGAN), "rdx")
    yield instruction("mov", cell(NUMBER), "r9")
    yield instruction("mov", cell(ITERATION), 1)
    yield instruction("mov", state(LOOP_NOW), "r8")
    yield instruction("shl", "rcx", FAR.bit_length() - 1)
    yield instruction("mov", "r8", entry(_RINGS))
    yield instruction("mov", Mem("r8", "rcx", 8, 8), "rdx")
    yield Instruction("ret")


def _iteration() -> Iterator[Item]:
    """activity._next_iteration."""
    yield Label("iteration")
    yield instruction("mov", "rcx", state(ACTIVE))
    yield instruction("sub", "rcx", 1)
    yield instruction("mov", "rax", "rcx")
    yield instruction("shl", "rax", (8 * ROW).bit_length() - 1)
    yield instruction("add", "rax", "r13")
    for before in range(TOLD_BEFORE - 1, -1, -1):
        yield instruction("mov", "rdx", cell(BEFORE + before - 1 if before else BEGAN))
        yield instruction("mov", cell(BEFORE + before), "rdx")
    yield instruction("mov", "rdx", state(TIME))
    yield instruction("mov", cell(BEGAN), "rdx")
    yield instruction("mov", "r8", cell(ITERATION))
    yield instruction("add", "r8", 1)
    yield instruction("mov", cell(ITERATION), "r8")
    yield instruction("shl", "rcx", FAR.bit_length() - 1)
    yield instruction("and", "r8d", FAR - 1)
    yield instruction("add", "rcx", "r8")
    yield instruction("mov", "r8", entry(_RINGS))
    yield instruction("mov", Mem("r8", "rcx", 8), "rdx")
    yield Instruction("ret")


def _ahead() -> Iterator[Item]:
    """r9d words further on: what places they lead to is fetched. r15 stays."""
    yield Label("ahead")
    yield instruction("lea", "r10", word(_AHEAD))
    yield instruction("mov", "rax", entry(LAST_AHEAD))
    yield instruction("cmp", "r10", "rax")
    yield instruction("cmova", "r10", "rax")
    yield Label("ahead_next")
    yield instruction("mov", "eax", Mem("r10", size=4))
    yield instruction("add", "r10", 8)
    yield instruction("mov", "ecx", "eax")
    yield instruction("shr", "ecx", 8)
    yield instruction("and", "ecx", CACHE - 1 << 4)
    yield instruction("mov", "rdx", Mem("r14", "rcx", 1, 8))
    yield instruction("and", "eax", PAGE - 8)
    yield instruction("prefetcht0", Mem("rdx", "rax", 8))
    yield instruction("sub", "r9d", 1)
    yield jump("ahead_next", "ne")
    yield Instruction("ret")


_Kind = tuple[int, bool]  # bytes, whether they are written; of no bytes: any access, looked at by a kernel
KINDS: tuple[_Kind, ...] = ((0, False), *((size, writes) for size in (4, 8, 16, 32) for writes in (False, True)))


def kind_of(shape: AccessShape) -> _Kind:
    """The one for accesses of ``shape``."""
    kind = shape.size, shape.writes
    return kind if kind in KINDS and not (shape.reads and shape.writes) else KINDS[0]


DIRECTORY = ROUTINES + len(KINDS)


class Routine:
    """An access: its word is in rax, its site in r11."""

    def __init__(self, size: int, writes: bool) -> None:
        self.name = f"{'write' if writes else 'read'}{size}"
        self.size, self.writes = size, writes
        self.later: list[Item] = []

    def label(self, *parts: object) -> str:
        return "_".join((self.name, *map(str, parts)))

    def items(self) -> Iterator[Item]:
        yield Label(self.name)
        yield instruction("mov", "rcx", "rax")
        yield instruction("shr", "rcx", 48)
        yield instruction("add", "ecx", "r15d")
        yield instruction("cmp", "ecx", "r11d")
        yield jump("other", "ne")
        if not self.size:
            yield jump("look_at")
            return
        yield instruction("test", "al", min(self.size, 8) - 1)
        yield jump("look_at", "ne")
        yield instruction("mov", "ecx", "eax")
        yield instruction("shr", "ecx", 8)
        yield instruction("and", "ecx", CACHE - 1 << 4)
        yield instruction("add", "rcx", "r14")
        yield instruction("mov", "rdx", "rax")
        yield instruction("shl", "rdx", 16)
        yield instruction("shr", "rdx", 28)
        yield instruction("cmp", "rdx", Mem("rcx"))
        yield jump("look_at", "ne")
        yield instruction("mov", "r9", "rax")
        yield instruction("and", "eax", PAGE - 8)
        if self.size > 8:
            yield instruction("cmp", "eax", PAGE - self.size)
            yield jump(self.label("again"), "a")
        yield instruction("shl", "eax", 3)
        yield instruction("add", "rax", Mem("rcx", displacement=8))
        if self.size == 4:
            yield from self._half()
        for part in range(self.size // 8):
            yield instruction("cmp", Mem("rax", displacement=8 * CELL * part), 0)
            yield jump(self.label("again"), "l")
        for part in range(max(1, self.size // 8)):
            if part:
                yield instruction("add", "rax", 8 * CELL)
            yield from self._touch(part)
        yield Instruction("ret")
        yield Label(self.label("again"))
        yield instruction("mov", "rax", "r9")
        yield jump("look_at")
        yield from self.later

    def _half(self) -> Iterator[Item]:
        """The part of four bytes of the cell at rax, whose address ends as r9."""
        yield instruction("mov", "rcx", Mem("rax"))
        yield instruction("not", "rcx")
        yield instruction("test", "rcx", "rcx")
        yield jump(self.label("again"), "s")
        yield instruction("test", "cl", 1)
        yield jump(self.label("again"), "ne")
        yield instruction("shr", "rcx", 1)
        yield instruction("mov", "edx", "r9d")
        yield instruction("shr", "edx", 2)
        yield instruction("and", "edx", 1)
        yield instruction("add", "rcx", "rdx")
        yield instruction("shl", "rcx", 6)
        yield instruction("mov", "rax", entry(CELLS_AT))
        yield instruction("add", "rax", "rcx")

    def _touch(self, part: int) -> Iterator[Item]:
        yield instruction("mov", "rsi", cell(WRITTEN))
        yield instruction("test", "rsi", "rsi")
        name = "waw" if self.writes else "raw"
        yield jump(self.label(part, name), "e")
        yield instruction("mov", "edx", cell(WRITER, 4, True))
        yield from self._find(part, WAW if self.writes else RAW, name)
        yield from self._write(part) if self.writes else self._read(part)

    def _find(self, part: int, which: int, name: str, last: bool = False) -> Iterator[Item]:
        """carriers.find: the source is in edx, the time in rsi, the ``last`` one in rdi. The label ``name`` is behind
        it; rax and r11 stay."""
        again, behind = self.label(part, name, "again"), self.label(part, name)
        known = [Mem("rcx", displacement=8 * column) for column in range(6)]
        yield instruction("shl", "rdx", 32)
        yield instruction("lea", "rcx", Mem(None, "r11", 4, which))
        yield instruction("add", "rdx", "rcx")
        yield instruction("mov", "rcx", "rdx")
        yield instruction("shr", "rcx", 27)
        yield instruction("xor", "ecx", "edx")
        yield instruction("and", "ecx", KNOWN - 1)
        yield instruction("shl", "ecx", 6)
        yield instruction("add", "rcx", entry(_KNOWN_AT))
        yield instruction("cmp", "rdx", known[KNOWN_KEY])
        yield jump(again, "ne")
        yield instruction("mov", "r8", known[KNOWN_LOW])
        yield instruction("cmp", "rsi", Mem("r13", "r8", 8))
        yield jump(again, "l")
        yield instruction("mov", "r8", known[KNOWN_HIGH])
        yield instruction("cmp", "rdi" if last else "rsi", Mem("r13", "r8", 8))
        yield jump(again, "ge")
        yield instruction("mov", "r8", known[KNOWN_OWN])
        yield instruction("mov", "r8", Mem("r13", "r8", 8))
        yield instruction("cmp", "r8", known[KNOWN_CARRIER])
        yield jump(again, "ne")
        yield instruction("mov", "r8", known[KNOWN_COUNT])
        yield instruction("mov", "rcx", entry(_FOUND_AT))
        yield instruction("add", Mem("rcx", "r8", 8), 1)
        if last:
            yield instruction("cmp", "rsi", "rdi")
            yield jump(behind, "e")
            yield instruction("add", Mem("rcx", "r8", 8), 1)
        yield Label(behind)
        self.later += [
            Label(again), instruction("mov", "rcx", "rdx"), instruction("mov", "r8", "rsi"),
            instruction("mov", "r9", "rdi" if last else "rsi"), *_kept(FIND), jump(behind)]

    def _read(self, part: int) -> Iterator[Item]:
        done, second, third, fourth, further = (self.label(part, name) for name in (
            "read", "second", "third", "fourth", "further"))
        yield instruction("mov", "rdx", state(TIME))
        yield instruction("cmp", cell(READERS, 4, True), "r11d")
        yield jump(second, "ne")
        yield instruction("mov", cell(LAST), "rdx")
        yield jump(done)
        yield Label(second)
        yield instruction("mov", "rdi", cell(READERS))
        yield instruction("cmp", "edi", "r11d")
        yield jump(third, "ne")
        yield instruction("mov", cell(SECOND_LAST), "rdx")
        yield jump(done)
        yield Label(third)
        yield instruction("test", "rdi", "rdi")
        yield jump(fourth, "ne")
        yield instruction("mov", cell(READERS, 4, True), "r11d")
        yield instruction("mov", cell(FIRST), "rdx")
        yield instruction("mov", cell(LAST), "rdx")
        yield jump(done)
        yield Label(fourth)
        yield instruction("test", "edi", "edi")
        yield jump(further, "ne")
        yield instruction("mov", cell(READERS, 4), "r11d")
        yield instruction("mov", cell(SECOND_FIRST), "rdx")
        yield instruction("mov", cell(SECOND_LAST), "rdx")
        yield jump(done)
        yield Label(further)
        yield from _further(functools.partial(self.label, part), done)
        yield Label(done)

    def _write(self, part: int) -> Iterator[Item]:
        own, chunks = self.label(part, "own"), self.label(part, "chunks")
        yield instruction("cmp", cell(READERS), 0)
        yield jump(own, "e")
        yield instruction("mov", "edx", cell(READERS, 4, True))
        yield instruction("mov", "rsi", cell(FIRST))
        yield instruction("mov", "rdi", cell(LAST))
        yield from self._find(part, WAR_OF_FIRST, "first", last=True)
        yield instruction("mov", "edx", cell(READERS, 4))
        yield instruction("test", "edx", "edx")
        yield jump(own, "e")
        yield instruction("mov", "rsi", cell(SECOND_FIRST))
        yield instruction("mov", "rdi", cell(SECOND_LAST))
        yield from self._find(part, WAR, "other", last=True)
        yield instruction("cmp", cell(WRITER, 4), 0)
        yield jump(chunks, "ne")
        yield Label(own)
        yield instruction("mov", "rdx", state(TIME))
        yield instruction("mov", cell(WRITTEN), "rdx")
        yield instruction("mov", "rcx", "r11")
        yield instruction("shl", "rcx", 32)
        yield instruction("mov", cell(WRITER), "rcx")
        yield instruction("mov", cell(READERS), 0)
        self.later += [
            Label(chunks), instruction("mov", "rcx", "rax"), instruction("mov", "r8", "r11"),
            instruction("mov", "r9d", 2), *_kept(WRITE_FURTHER), jump(own)]


def _kept(function: int) -> Iterator[Item]:
    """A call after which rax and r11 are as before."""
    yield instruction("mov", entry(CELL_NOW), "rax")
    yield instruction("mov", entry(SITE_NOW), "r11")
    yield from call(function)
    yield instruction("mov", "rax", entry(CELL_NOW))
    yield instruction("mov", "r11", entry(SITE_NOW))


def _further(label: Callable[[str], str], done: str) -> Iterator[Item]:
    """shadow.further_reader: the cell is at rax, the site in r11, the time in rdx; rax and r11 stay."""
    chunk = Mem("r9", size=4)
    yield instruction("mov", "rdi", "rax")
    yield instruction("sub", "rdi", entry(CELLS_AT))
    yield instruction("shr", "rdi", 6)
    yield instruction("imul", "esi", "r11d", NEAR_STEP)
    yield instruction("add", "esi", "edi")
    yield instruction("and", "esi", RECENT - 1)
    yield instruction("shl", "esi", 3)
    yield instruction("add", "rsi", entry(_RECENT_AT))
    yield instruction("mov", "r10", cell(MAY_READ))
    yield instruction("bt", "r10", "r11")
    yield jump(label("new"), "ae")
    yield instruction("mov", "r8", Mem("rsi"))
    yield instruction("mov", "r9", "r8")
    yield instruction("shr", "r9", 4)
    yield instruction("shl", "r9", 7)
    yield instruction("add", "r9", entry(_CHUNKS_AT))
    yield instruction("cmp", Mem("r9", displacement=4, size=4), "edi")
    yield jump(label("slow"), "ne")
    yield instruction("and", "r8d", 15)
    yield instruction("cmp", Mem("r9", "r8", 4, 8 * SITES, 4), "r11d")
    yield jump(label("slow"), "ne")
    yield instruction("shl", "r8d", 4)
    yield instruction("mov", Mem("r9", "r8", 1, 8 * TIMES + 8), "rdx")
    yield jump(done)
    yield Label(label("new"))
    yield instruction("mov", "r8d", cell(WRITER, 4))
    yield instruction("test", "r8d", "r8d")
    yield jump(label("slow"), "e")
    yield instruction("mov", "r9", "r8")
    yield instruction("shl", "r9", 7)
    yield instruction("add", "r9", entry(_CHUNKS_AT))
    yield instruction("mov", "edi", chunk)
    yield instruction("and", "edi", 15)
    yield instruction("cmp", "edi", OF_CHUNK)
    yield jump(label("slow"), "e")
    yield instruction("add", chunk, 1)
    yield instruction("mov", Mem("r9", "rdi", 4, 8 * SITES, 4), "r11d")
    yield instruction("shl", "r8", 4)
    yield instruction("add", "r8", "rdi")
    yield instruction("mov", Mem("rsi"), "r8")
    yield instruction("shl", "edi", 4)
    yield instruction("mov", Mem("r9", "rdi", 1, 8 * TIMES), "rdx")
    yield instruction("mov", Mem("r9", "rdi", 1, 8 * TIMES + 8), "rdx")
    yield instruction("bts", "r10", "r11")
    yield instruction("mov", cell(MAY_READ), "r10")
    yield jump(done)
    yield Label(label("slow"))
    yield instruction("mov", "rcx", "rax")
    yield instruction("mov", "r8", "r11")
    yield instruction("mov", "r9", "rdx")
    yield from _kept(READ_FURTHER)


def _unusual() -> Iterator[Item]:
    """Out of a routine, to a kernel: an access; words that are not the expected ones."""
    yield Label("look_at")
    yield instruction("mov", entry(SITE_NOW), "r11")
    yield instruction("mov", "rcx", "r11")
    yield instruction("sub", "rcx", "r15")
    yield instruction("mov", "r8", "rax")
    yield from call(LOOK_AT)
    yield jump("short", "ne")
    yield Instruction("ret")
    yield Label("short")
    yield instruction("mov", "r11", entry(SITE_NOW))
    yield from _at_access()
    yield jump("exit")
    yield Label("other")
    yield from _at_access()
    yield jump("interpret")


def _at_access() -> Iterator[Item]:
    """Leave the routine: from its word on the block is looked at by kernels."""
    yield instruction("add", "rsp", 8)
    yield instruction("sub", "r11", "r15")
    yield instruction("lea", "rbx", Mem("rbx", "r11", 8, 16))


def common() -> Iterator[Item]:
    yield Label("run")
    for register in _SAVED:
        yield instruction("push", register)
    yield instruction("sub", "rsp", 8)
    yield instruction("mov", "rbp", "rdi")
    yield instruction("mov", "rbx", "rsi")
    for register, number in (("r12", _STATE), ("r13", _ACTIVE_AT), ("r14", NEAR)):
        yield instruction("mov", register, entry(number))
    yield from next_block()
    yield Label("interpret")
    yield instruction("mov", "rcx", "rbx")
    yield from call(INTERPRET, False)
    yield instruction("mov", "rbx", entry(POSITION))
    yield jump("exit", "ne")
    yield from next_block()
    yield Label("exit")
    yield instruction("mov", entry(POSITION), "rbx")
    yield instruction("mov", "rax", entry(RETURNED))
    yield instruction("add", "rsp", 8)
    for register in reversed(_SAVED):
        yield instruction("pop", register)
    yield Instruction("ret")
    yield from (*_leave(), *_enter(), *_iteration(), *_ahead(), *_unusual())
    for size, writes in KINDS:
        yield from Routine(size, writes).items()


