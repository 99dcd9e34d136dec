"""Which cell holds which value at a point of the program.

Invariant: the cell that ``find`` gives contains exactly that value there, in every execution that comes by.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from memopt.analysis.aliasing import Aliasing
from memopt.analysis.needs import stores_of
from memopt.analysis.nest import Item
from memopt.analysis.privates import is_private
from memopt.analysis.slices import origin
from memopt.analysis.values import Value
from memopt.ir.linear import Linear

Span = tuple[int, int]  # first bit, bits


@dataclass(frozen=True, slots=True)
class Held:
    """``cells``: for each base value, the cells of those of its bits that are in memory, in the order of storing."""

    aliasing: Aliasing
    cells: dict[Value, dict[tuple[Span, Linear], None]] = field(default_factory=dict)

    def copy(self) -> Held:
        return Held(self.aliasing, {base: dict(known) for base, known in self.cells.items()})

    def hold(self, value: Value, cell: Linear) -> None:
        base, low = origin(value)
        known = self.cells.setdefault(base, {})
        key = (low, value.width), cell
        known.pop(key, None)
        known[key] = None

    def find(self, value: Value) -> Linear | None:
        """A cell that holds ``value``: the one stored last, but no private one where there is another."""
        cells = self.all(value)
        return max(cells, key=lambda c: (not is_private(c[1]), c[0]))[1] if cells else None

    def all(self, value: Value) -> list[tuple[int, Linear]]:
        """All cells that hold ``value``, numbered in the order of storing."""
        base, low = origin(value)
        return [(number, cell + (low - start) // 8) for number, ((start, bits), cell) in
                enumerate(self.cells.get(base, {}))
                if start <= low and low + value.width <= start + bits and (low - start) % 8 == 0]

    def holds(self, value: Value, cell: Linear) -> bool:
        return any(c == cell for _, c in self.all(value))

    def kill(self, pointer: Linear, width: int) -> None:
        """After a store of ``width`` bits at ``pointer``: what it did not overwrite stays, down to bytes."""
        for base, known in self.cells.items():
            kept: dict[tuple[Span, Linear], None] = {}
            for span, cell in known:
                kept |= dict.fromkeys(self._rest(span, cell, pointer, width))
            self.cells[base] = kept

    def _rest(self, span: Span, cell: Linear, pointer: Linear, width: int) -> list[tuple[Span, Linear]]:
        low, bits = span
        if not self.aliasing.overlap(cell, bits, pointer, width):
            return [(span, cell)]
        if bits <= 8 or not (cell - pointer).is_constant:
            return []
        half = bits // 2
        return [piece for start in (0, half)
                for piece in self._rest((low + start, half), cell + start // 8, pointer, width)]

    def kill_all(self, items: Iterable[Item]) -> None:
        """After ``items``, all of them, some of them or none of them."""
        for store in stores_of(items):
            self.kill(store.pointer, store.width)
