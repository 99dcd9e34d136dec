"""Traces of random nests with calls, with the iteration vector of each run of a block."""

from __future__ import annotations

import random
from contextlib import suppress

from memopt.traces.core.format import BLOCK, AccessShape, BlockShape

Vector = tuple[tuple[tuple[int, int], int, int], ...]  # (node, loop), entry, iteration, from outside to inside
Event = tuple[int, int, Vector, list[tuple[int, int]]]  # block, node, vector, and index and address of each access


class Enough(Exception):
    """The trace is long enough."""


class Drawn:
    """A function of loops in loops that calls others, its shapes and a trace of one run."""

    def __init__(self, seed: int, span: int = 128) -> None:
        """``span``: bytes that are accessed, around the end of a page."""
        self.span = span
        self.random = random.Random(seed)
        self.shapes: list[BlockShape] = []
        self.loops: list[tuple[int | None, int]] = []
        self.words: list[int] = []
        self.events: list[Event] = []
        self.runs = self.entries = 0
        functions = [self.body(None, 0, True) for _ in range(3)]
        self.functions = functions
        with suppress(Enough):
            for _ in range(3):
                self.run(functions[0], 16, (), 0)

    def block(self, loop: int | None, header: bool, entry: bool) -> int:
        shapes = tuple(
            AccessShape(self.random.choice((8, 8, 8, 4, 16, 32, 2, 1)), reads, writes)
            for reads, writes in self.random.choices(((True, False), (False, True), (True, True)), (4, 3, 1),
                                                     k=self.random.randrange(4)))
        self.shapes.append(BlockShape(loop, header, entry, shapes))
        return len(self.shapes) - 1

    def body(self, loop: int | None, depth: int, entry: bool = False) -> list[object]:
        parts: list[object] = [self.block(loop, loop is not None and not entry, entry)]
        for _ in range(self.random.randrange(1, 4)):
            if depth < 3 and self.random.random() < 0.6:
                self.loops.append((loop, depth + 1))
                parts.append((len(self.loops) - 1, self.body(len(self.loops) - 1, depth + 1)))
            elif self.random.random() < 0.4:
                parts.append("call")
            parts.append(self.block(loop, False, False))
        return parts

    def run(self, body: list[object], node: int, vector: Vector, level: int) -> None:
        for part in body:
            if isinstance(part, int):
                self.tell(part, node, vector)
            elif part == "call":
                if level < 2:
                    self.run(self.functions[level + 1], 16 * (node + 1), vector, level + 1)
            elif isinstance(part, tuple):
                loop, inside = part
                self.entries += 1
                entry = self.entries
                for iteration in range(1, self.random.randrange(2, 6)):
                    self.run(inside, node, (*vector, ((node, loop), entry, iteration)), level)

    def tell(self, block: int, node: int, vector: Vector) -> None:
        if self.runs == 2000:
            raise Enough
        self.runs += 1
        self.words += [BLOCK << 48 | block, node]
        made = []
        for index, shape in enumerate(self.shapes[block].accesses):
            grain = min(shape.size, 8) if self.random.random() < 0.9 else 1
            address = (1 << 20) - self.span // 2 + self.random.randrange(0, self.span // grain) * grain
            self.words.append(index << 48 | address)
            made.append((index, address))
        self.events.append((block, node, vector, made))
