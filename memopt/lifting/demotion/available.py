"""Available-values analysis: which memory cells hold a given value at a point of the program.

Example: after ``v0 = load [a]; store [b] = v0`` the value v0 is available in the cells a and b. A store to a kills the
first, a store of half its width only that half.

It is a forward dataflow analysis: ``hold`` generates facts, ``kill`` removes them, and aliasing decides what a store
kills. Invariant: the cell that ``find`` returns contains exactly that value there, in every execution that reaches this
point.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from memopt.ir.linear import Linear
from memopt.lifting.demotion.aliasing import Aliasing
from memopt.lifting.demotion.scalar_expansion import is_private
from memopt.lifting.values.bits import base_and_offset
from memopt.lifting.values.loop_tree import Item, stores_of
from memopt.lifting.values.values import Value

_Question = tuple[tuple[Linear, ...], Linear, int, Linear, int]


@dataclass(frozen=True, slots=True)
class ValueInCell:
    """A fact: ``cell`` holds the bits ``low`` .. ``low + bits - 1`` of a value, where all of ``given`` are >= 0."""

    low: int
    bits: int
    cell: Linear
    given: tuple[Linear, ...] = ()


@dataclass(frozen=True, slots=True)
class AvailableValues:
    """The available values at one point of the program.

    ``places``: for each base value (memopt.lifting.values.bits.base_and_offset) the cells that hold bits of it, in the
    order of storing. ``answers``: a cache of what ``aliasing`` answered, shared by all copies.
    """

    aliasing: Aliasing
    places: dict[Value, dict[ValueInCell, None]] = field(default_factory=dict)
    answers: dict[_Question, bool] = field(default_factory=dict)

    def copy(self) -> AvailableValues:
        """An independent copy, for a path or a loop body."""
        return AvailableValues(self.aliasing, {base: dict(places) for base, places in self.places.items()},
                               self.answers)

    def overlap(self, cell: Linear, bits: int, pointer: Linear, width: int, given: tuple[Linear, ...] = ()) -> bool:
        """``Aliasing.overlap_where``, cached."""
        question = given, cell, bits, pointer, width
        if question not in self.answers:
            self.answers[question] = self.aliasing.overlap_where(*question)
        return self.answers[question]

    def replace(self, other: AvailableValues) -> None:
        """Take over the facts of ``other``."""
        self.places.clear()
        self.places.update(other.places)

    def hold(self, value: Value, cell: Linear) -> None:
        """From here on ``cell`` holds ``value``; it counts as the one stored last."""
        base, low = base_and_offset(value)
        places = self.places.setdefault(base, {})
        place = ValueInCell(low, value.width, cell)
        places.pop(place, None)
        places[place] = None

    def find(self, value: Value, given: tuple[Linear, ...] = ()) -> Linear | None:
        """A cell that holds ``value`` wherever ``given`` are >= 0; None if there is none.

        The one stored last is taken; cells of the program come before private ones.
        """
        cells = self.all(value, given)
        return max(enumerate(cells), key=lambda c: (not is_private(c[1]), c[0]))[1] if cells else None

    def all(self, value: Value, given: tuple[Linear, ...] = ()) -> list[Linear]:
        """All cells that hold ``value`` wherever ``given`` are >= 0, in the order of storing."""
        base, low = base_and_offset(value)
        return [p.cell + (low - p.low) // 8 for p in self.places.get(base, {})
                if p.low <= low and low + value.width <= p.low + p.bits and (low - p.low) % 8 == 0
                and implied(p.given, given)]

    def holds(self, value: Value, cell: Linear) -> bool:
        """Whether ``cell`` holds ``value``."""
        return cell in self.all(value)

    def kill(self, pointer: Linear, width: int, given: tuple[Linear, ...] = ()) -> None:
        """Remove what a store of ``width`` bits at ``pointer`` may overwrite; other bytes of the same cells stay.

        The store runs where ``given`` are >= 0, and so does the code for which the facts are used afterwards.
        """
        self.aliasing.budget.check()
        for base, places in self.places.items():
            if any(self.overlap(p.cell, p.bits, pointer, width, given) for p in places):
                self.places[base] = {rest: None for p in places for rest in self._surviving(p, pointer, width, given)}

    def _surviving(self, place: ValueInCell, pointer: Linear, width: int,
                   given: tuple[Linear, ...]) -> list[ValueInCell]:
        """The parts of ``place`` that a store does not overwrite, found by halving it down to bytes."""
        if not self.overlap(place.cell, place.bits, pointer, width, given):
            return [place]
        if place.bits <= 8 or not (place.cell - pointer).is_constant:
            return []
        half = place.bits // 2
        halves = (replace(place, low=place.low + n, bits=half, cell=place.cell + n // 8) for n in (0, half))
        return [piece for one in halves for piece in self._surviving(one, pointer, width, given)]

    def add_conditional(self, inner: AvailableValues, conditions: tuple[Linear, ...]) -> None:
        """Add the facts of ``inner`` with ``conditions`` as a restriction, at the join behind a guarded item.

        ``inner`` are the facts behind the item, or those in front of it with the condition negated.
        """
        for base, places in inner.places.items():
            mine = self.places.setdefault(base, {})
            for place in places:
                if place not in mine:
                    mine[replace(place, given=place.given + conditions)] = None

    def kill_all(self, items: Iterable[Item]) -> None:
        """Remove what any store in ``items`` may overwrite, whether or not it runs."""
        for store in stores_of(items):
            self.kill(store.pointer, store.width)


def implied(wanted: tuple[Linear, ...], given: tuple[Linear, ...]) -> bool:
    """Whether each of ``wanted`` is >= 0 because one of ``given``, which differs by a constant, is."""
    return all(any((w - g).is_constant and (w - g).constant >= 0 for g in given) for w in wanted)
