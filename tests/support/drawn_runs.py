"""Traces of random nests whose accesses are affine in the iterations: most iterations are alike, some are not."""

from __future__ import annotations

import random

from memopt.traces.core.format import BLOCK, EXTRA, AccessShape, BlockShape

_Told = tuple[int, list[tuple[int, list[int]]]]  # a block; of its accesses, where, and how far on by each loop
_DISTANCES = (0, 0, 8, 8, 8, 16, 24, -8, -24, 72, 4, 1, 4104, -4096)
_TRIPS = (1, 2, 3, 3, 7, 9, 12, 20)


class DrawnRuns:
    """``words``: the trace of one function of loops in loops that calls another; see ``Drawn`` for the shapes.
    ``grain``: bytes of most places."""

    def __init__(self, seed: int, grain: int = 8) -> None:
        self._random, self._grain = random.Random(seed), grain
        self.shapes: list[BlockShape] = []
        self.loops: list[tuple[int | None, int]] = []
        self.words: list[int] = []
        self._bases = [(1 << 20) + self._random.randrange(0, 1 << 14, 8) for _ in range(self._random.randrange(1, 4))]
        self._called = self._body(None, 0, True, 1)
        body = self._body(None, 0, True, 2)
        for _ in range(3):
            self._run(body, 16, ())

    def _body(self, loop: int | None, depth: int, entry: bool, parts: int) -> list[object]:
        made: list[object] = [self._block(loop, loop is not None and not entry, entry, depth)]
        for _ in range(self._random.randrange(1, 1 + parts)):
            if depth < 3 and self._random.random() < 0.9 - 0.2 * depth:
                self.loops.append((loop, depth + 1))
                number = len(self.loops) - 1
                made.append((number, self._random.choice(_TRIPS), self._body(number, depth + 1, False, parts)))
            elif self._random.random() < 0.3 and parts > 1:
                made.append("call")
            made.append(self._block(loop, False, False, depth))
        return made

    def _block(self, loop: int | None, header: bool, entry: bool, depth: int) -> _Told:
        chosen, accesses = [], []
        for reads, writes in self._random.choices(((True, False), (False, True), (True, True)), (4, 3, 1),
                                                  k=self._random.randrange(5)):
            grain = self._grain
            size = self._random.choice((grain,) * 9 + (2 * grain, 2 * grain, 4 * grain, 4, 1))
            chosen.append(AccessShape(size, reads, writes))
            far = [grain * self._random.choice(_DISTANCES[:self._random.choice((7, 10, 14))]) // 8
                   for _ in range(depth)]
            if far and self._random.random() < 0.5:
                far[-1] = 3 * grain
            grain = grain if self._random.random() < 0.95 else 1
            accesses.append((self._random.choice(self._bases) + grain * self._random.randrange(0, 12), far))
        self.shapes.append(BlockShape(loop, header, entry, tuple(chosen)))
        return len(self.shapes) - 1, accesses

    def _run(self, body: list[object], node: int, vector: tuple[int, ...]) -> None:
        for part in body:
            if part == "call":
                self._run(self._called, 16 * (node + 1), vector[-1:] if self._random.random() < 0.02 else ())
            elif isinstance(part, tuple) and len(part) == 2:
                self._tell(part, node, vector)
            elif isinstance(part, tuple):
                _, trips, inside = part
                if self._random.random() < 0.05:
                    trips = self._random.randrange(1, 30)
                for iteration in range(trips):
                    if len(self.words) < 60_000:
                        self._run(inside, node, (*vector, iteration))

    def _tell(self, block: _Told, node: int, vector: tuple[int, ...]) -> None:
        number, accesses = block
        self.words += [BLOCK << 48 | number, node]
        if number % 5 == 3:
            self.words.append(EXTRA << 48 | self._random.randrange(1 << 40))
        for index, (base, far) in enumerate(accesses):
            address = base + sum(d * i for d, i in zip(far, vector, strict=False))
            if self._random.random() < 0.0005:
                address += 8
            self.words.append(index << 48 | address)
