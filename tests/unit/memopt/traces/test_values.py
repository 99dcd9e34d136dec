"""Values of functions and loops, held against what a made-up program had."""

from __future__ import annotations

import functools
import operator
import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise

import numpy
import pytest

from memopt.instrumentation.induction_registers import Stepping
from memopt.instrumentation.value_probes import Moment, Point
from memopt.traces.core.format import BLOCK
from memopt.traces.values import AMOUNTS, PLACES, Value, Values

_WRAPPED = Stepping(0, 0, "rbx", -3, 32)
POINTS = tuple(
    point for unit in range(4) for point in (
        Point(6 * unit, Moment.ENTRY, None, ("rdi", "rsi")[:unit % 3]), Point(6 * unit + 1, Moment.BACK),
        Point(6 * unit + 2, Moment.LOOP_ENTRY, 0, ("r12",)), Point(6 * unit + 3, Moment.LOOP_EXIT, 0),
        Point(6 * unit + 4, Moment.LOOP_ENTRY, 1, (), _WRAPPED),
        Point(6 * unit + 5, Moment.LOOP_EXIT, 1, (), _WRAPPED)))
TOP_OF_STACK = 1 << 46
Key = tuple[int, int | None, str]


@dataclass
class Frame:
    """A function; ``loops``: those that are active in it, outermost first: (number, since when, its header's runs)."""

    node: int
    unit: int
    stack: int
    since: int
    inside: int = 0
    loops: list[tuple[int, int, int]] = field(default_factory=list)


class Program:
    """Calls, returns, jumps over frames and loops at random: the words of their trace, and what they had."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.words: list[int] = []
        self.had: dict[Key, list[int]] = defaultdict(list)
        self.nodes: dict[tuple[int, int], int] = {}  # by caller and unit
        self.now, self.waited = 1000, 0
        self.frames = [Frame(4096, 0, TOP_OF_STACK, self.now)]
        self.enter(self.frames.pop())
        for _ in range(self.draw.randrange(2, 600)):
            self.draw.choice((self.call, self.call, self.leave, self.enter_loop, self.exit_loop))()
        self.over(0)

    def tell(self, point: int, node: int, stack: int, *more: int) -> None:
        if self.draw.random() < 0.1:
            self.waited += 5000
        self.now += self.draw.randrange(1, 50)
        self.words += [BLOCK << 48 | point, node, self.now + self.waited, stack, self.waited,
                       *(value % (1 << 64) for value in more)]

    def values_of(self, point: int, node: int) -> list[int]:
        made = [self.draw.choice((0, 1, 7, -5)) for _ in POINTS[point].registers]
        for name, value in zip(POINTS[point].registers, made, strict=True):
            self.had[node, POINTS[point].loop, name].append(value)
        return made

    def enter(self, frame: Frame) -> None:
        caller = self.frames[-1].node if self.frames else 64
        self.tell(6 * frame.unit, frame.node, frame.stack, caller, *self.values_of(6 * frame.unit, frame.node))
        frame.since = self.now
        self.frames.append(frame)

    def call(self) -> None:
        """By a jump at the function's end, now and then."""
        top, unit = self.frames[-1], self.draw.randrange(4)
        node = self.nodes.setdefault((top.node, unit), 8192 + 64 * len(self.nodes))
        below = 0 if self.draw.random() < 0.2 and not top.loops else self.draw.randrange(16, 200, 8)
        self.enter(Frame(node, unit, top.stack - below, 0))

    def leave(self) -> None:
        """Return to the caller, or to one further up."""
        left = len(self.frames) - 1 if self.draw.random() < 0.8 else self.draw.randrange(1, len(self.frames) + 1)
        while 0 < left < len(self.frames) and self.frames[left - 1].stack == self.frames[left].stack:
            left -= 1  # jumped out of
        if 0 < left < len(self.frames):
            below, first = self.frames[left - 1], self.frames[left]
            self.tell(6 * below.unit + 1, below.node, self.draw.randrange(first.stack + 8, below.stack + 8, 8))
            self.over(left)

    def over(self, left: int) -> None:
        while len(self.frames) > left:
            frame = self.frames.pop()
            cycles = self.now - frame.since
            self.had[frame.node, None, "cycles"].append(cycles)
            self.had[frame.node, None, "own cycles"].append(cycles - frame.inside)
            if self.frames:
                self.frames[-1].inside += cycles

    def enter_loop(self) -> None:
        top = self.frames[-1]
        loop = len(top.loops)
        if loop < 2:
            point, runs = 6 * top.unit + 2 + 2 * loop, self.draw.randrange(1 << 31)
            self.tell(point, top.node, top.stack - 8, runs, *self.values_of(point, top.node))
            top.loops.append((loop, self.now, runs))

    def exit_loop(self) -> None:
        top = self.frames[-1]
        if top.loops:
            (loop, since, runs), trips = top.loops.pop(), self.draw.choice((1, 1, 6, 1000, 1 << 29))
            self.tell(6 * top.unit + 3 + 2 * loop, top.node, top.stack - 8,
                      runs + trips if loop == 0 else (runs - 3 * trips) % (1 << 32))
            self.had[top.node, loop, "cycles"].append(self.now - since)
            self.had[top.node, loop, "trips"].append(trips)


def read(words: list[int], pieces: int) -> dict[Key, Value]:
    values = Values()
    values.know_points(POINTS)
    for piece in numpy.array_split(numpy.array(words, numpy.uint64), pieces):
        values.feed(piece)
    return {(value.node, value.loop, value.name): value for value in values.all()}


@pytest.mark.parametrize("seed", range(150))
def test_all_values_are_those_of_the_program(seed: int) -> None:
    program = Program(seed)
    found = read(program.words, program.draw.randrange(1, 9))
    assert {key: (v.count, v.least, v.most, v.total % (1 << 64)) for key, v in found.items()} == {
        key: (len(had), min(had), max(had), sum(had) % (1 << 64)) for key, had in program.had.items()}
    for key, value in found.items():
        had = program.had[key]
        if len(set(had)) <= PLACES:
            assert value.frequent == Counter(had)
        assert value.changes == sum(one != two for one, two in pairwise(had))
        if value.name in AMOUNTS:
            assert value.classes == Counter(1 << n.bit_length() >> 1 for n in had)
        assert value.bits % (1 << 64) == functools.reduce(operator.or_, had) % (1 << 64)


def test_a_loop_that_was_left_unseen_begins_again() -> None:
    node, stack = 4096, TOP_OF_STACK
    words = [BLOCK << 48, node, 100, stack, 0, 64]
    for now in (200, 300):
        words += [BLOCK << 48 | 2, node, now, stack, 0, now, 5]
    found = read([*words, BLOCK << 48 | 3, node, 350, stack, 0, 304], 1)
    assert found[node, 0, "trips"].frequent == {4: 1}
    assert found[node, 0, "cycles"].frequent == {50: 1}


def test_what_was_entered_before_the_trace_began_has_no_values() -> None:
    assert read([BLOCK << 48 | 3, 4096, 100, TOP_OF_STACK, 0, 7, BLOCK << 48 | 1, 4096, 120, TOP_OF_STACK, 0], 1) == {}


def test_a_return_that_is_not_told_is_seen_at_the_next_call() -> None:
    caller, first, second, stack = 4096, 4160, 4224, TOP_OF_STACK
    words = [BLOCK << 48, caller, 100, stack, 0, 64, BLOCK << 48, first, 200, stack - 64, 0, caller]
    found = read([*words, BLOCK << 48, second, 350, stack - 64, 0, caller, BLOCK << 48 | 1, caller, 400, stack, 0], 1)
    assert found[first, None, "cycles"].frequent == {150: 1}
    assert found[second, None, "cycles"].frequent == {50: 1}
    assert found[caller, None, "own cycles"].frequent == {100: 1}
