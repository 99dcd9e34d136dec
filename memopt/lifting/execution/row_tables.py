"""Tables of pointers to rows (``double **``): where rows were allocated one after another, the words of the table are
an arithmetic progression. Otherwise a word that is loaded and used as an address makes a nest data-dependent.

In a progression the word at ``pointer`` is linear in ``pointer``. That the words still are what they were when the
program was captured is a guard, that nothing in the nest writes to them another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from memopt.ir.linear import Linear
from memopt.ir.reasons import Rejected
from memopt.lifting.values.values import Loaded, Node, Value

WORD = 8
MOST_ROWS = 1 << 14  # in each direction
_FARTHEST = 1 << 31  # from row to row


@dataclass(frozen=True, slots=True)
class RowTable:
    """Words from ``low`` on and below ``high``: ``first``, ``first + step``, ...; ``step`` is a multiple of a word."""

    low: int
    high: int
    first: int
    step: int

    def __contains__(self, address: int) -> bool:
        return self.low <= address < self.high

    def row(self, pointer: Linear) -> Linear:
        """The word at ``pointer``, which is ``low`` and a multiple of a word and within the table."""
        return (pointer - self.low) * (self.step // WORD) + self.first


def table_around(address: int, peek: Callable[[int, int], int]) -> RowTable | None:
    """The progression that the words before or after ``address`` are part of, as far as it goes."""
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
        """How many words in that direction go on with the progression."""
        return next((n - 1 for n in range(1, MOST_ROWS) if word(address + direction * n * WORD)
                     != here + direction * n * step), MOST_ROWS - 1)

    before, after = last(-1), last(1)
    return RowTable(address - before * WORD, address + (after + 1) * WORD, here - before * step, step)


def words(value: Value) -> Iterator[Loaded]:
    """Loaded words that ``value`` is a sum of, and other things."""
    match value:
        case Loaded(_, width) if width == 8 * WORD:
            yield value
        case Node("add" | "sub", operands, _):
            for operand in operands:
                yield from words(operand)
