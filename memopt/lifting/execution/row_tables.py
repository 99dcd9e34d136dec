"""Tables of row pointers (``double **a``) whose words are an arithmetic progression.

Example: ``a[i][j]`` loads the row pointer ``a[i]`` and then an element of that row. The second address depends on
loaded data, so the nest would be rejected. But where the rows were allocated one after another, ``a[i]`` is
``first + step*i``, which is affine.

In: the address of one word of the table, and the captured memory. Out: the ``RowTable`` around that word, None if its
neighbours are no progression. One guard compares the words that the nest loads with the progression, at every entry,
another makes sure that nothing in the nest writes to them.

The captured table may be longer than the part of it that the nest uses, and the rest may be given back later (realloc
of a table that is too long). So each load leaves a ``RowLoad`` in the loop tree, and the guard looks at the words of
these loads alone (memopt.ir.region.Progression).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.ir.reasons import Rejected
from memopt.lifting.values.loop_tree import Guarded, Item, LoopNode, RowLoad, rewritten
from memopt.lifting.values.values import Loaded, Node, Substitution, Value

WORD = 8
MOST_ROWS = 1 << 14  # words looked at in each direction
_FARTHEST = 1 << 31  # bytes from one row to the next


@dataclass(frozen=True, slots=True)
class RowTable:
    """The words at the addresses ``low`` up to ``high`` are ``first``, ``first + step``, ...

    ``step`` is in bytes, a multiple of a word.
    """

    low: int
    high: int
    first: int
    step: int

    def __contains__(self, address: int) -> bool:
        return self.low <= address < self.high

    def row(self, pointer: Linear) -> Linear:
        """The word at ``pointer``. Precondition: it lies in the table, a multiple of a word behind ``low``."""
        return (pointer - self.low) * (self.step // WORD) + self.first


def table_around(address: int, peek: Callable[[int, int], int]) -> RowTable | None:
    """The longest progression that contains the word at ``address`` and a neighbour; None if there is none.

    ``peek(address, bits)`` reads captured memory and raises Rejected where it cannot.
    """
    def word(at: int) -> int | None:
        try:
            return peek(at, 8 * WORD)
        except Rejected:
            return None

    near = [word(address + WORD * n) for n in (-2, -1, 0, 1, 2)]
    steps = [b - a if a is not None and b is not None else None for a, b in pairwise(near)]
    step = steps[2] if steps[2] is not None and (steps[2] == steps[3] or steps[0] != steps[1]) else steps[1]
    here = near[2]
    if here is None or step is None or not step or step % WORD or abs(step) >= _FARTHEST:
        return None

    def last(direction: int) -> int:
        """How many further words in that direction (-1 or 1) continue the progression."""
        return next((n - 1 for n in range(1, MOST_ROWS) if word(address + direction * n * WORD)
                     != here + direction * n * step), MOST_ROWS - 1)

    before, after = last(-1), last(1)
    return RowTable(address - before * WORD, address + (after + 1) * WORD, here - before * step, step)


def words(value: Value) -> Iterator[Loaded]:
    """The loaded words among the terms of the sum ``value``."""
    match value:
        case Loaded(_, width) if width == 8 * WORD:
            yield value
        case Node("add" | "sub", operands, _):
            for operand in operands:
                yield from words(operand)


@dataclass(frozen=True, slots=True)
class RowLoads:
    """A load of a row pointer in all iterations of the loops around it: (counter, trips), outermost first; the load
    itself has the conditions. Trips are None where they are not known."""

    load: RowLoad
    loops: tuple[tuple[str, Linear | None], ...]

    @property
    def bounds(self) -> frozenset[Linear]:
        """The trip counts and conditions."""
        return frozenset(t for _, t in self.loops if t is not None) | frozenset(self.load.conditions)

    def rewritten(self, new: Substitution) -> RowLoads:
        """The same loads with live-in symbols replaced."""
        load = rewritten(self.load, new)
        assert isinstance(load, RowLoad)
        return RowLoads(load, tuple((c, None if t is None else new.linear(t)) for c, t in self.loops))


def row_loads(node: LoopNode, around: tuple[tuple[str, Linear | None], ...] = ()) -> Iterator[RowLoads]:
    """The loads of row pointers in a nest."""
    yield from _in_items(node.items, (*around, (node.counter, node.trips)), ())


def _in_items(items: Iterable[Item], around: tuple[tuple[str, Linear | None], ...],
              conditions: tuple[Linear, ...]) -> Iterator[RowLoads]:
    for item in items:
        match item:
            case RowLoad():
                yield RowLoads(replace(item, conditions=(*conditions, *item.conditions)), around)
            case LoopNode():
                yield from _in_items(item.items, (*around, (item.counter, item.trips)), conditions)
            case Guarded():
                yield from _in_items(item.items, around, (*conditions, *item.conditions))


def without_row_loads(items: Iterable[Item]) -> tuple[Item, ...]:
    """``items`` without the loads of row pointers: later stages know the rows by their affine addresses."""
    return tuple(replace(i, items=without_row_loads(i.items)) if isinstance(i, LoopNode | Guarded) else i
                 for i in items if not isinstance(i, RowLoad))
