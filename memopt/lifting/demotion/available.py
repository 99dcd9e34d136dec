"""Which cell holds which value at a point of the program.

Invariant: the cell that ``find`` gives contains exactly that value there, in every execution that comes by.
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
    """``cell`` holds ``bits`` bits of a base value from bit ``low`` on, where all of ``given`` are >= 0."""

    low: int
    bits: int
    cell: Linear
    given: tuple[Linear, ...] = ()


@dataclass(frozen=True, slots=True)
class AvailableValues:
    """``places``: for each base value where its bits are in memory, in the order of storing. ``answers``: what
    ``aliasing`` has said, for all copies together."""

    aliasing: Aliasing
    places: dict[Value, dict[ValueInCell, None]] = field(default_factory=dict)
    answers: dict[_Question, bool] = field(default_factory=dict)

    def copy(self) -> AvailableValues:
        return AvailableValues(self.aliasing, {base: dict(places) for base, places in self.places.items()},
                               self.answers)

    def overlap(self, cell: Linear, bits: int, pointer: Linear, width: int, given: tuple[Linear, ...] = ()) -> bool:
        question = given, cell, bits, pointer, width
        if question not in self.answers:
            self.answers[question] = self.aliasing.overlap_where(*question)
        return self.answers[question]

    def replace(self, other: AvailableValues) -> None:
        self.places.clear()
        self.places.update(other.places)

    def hold(self, value: Value, cell: Linear) -> None:
        base, low = base_and_offset(value)
        places = self.places.setdefault(base, {})
        place = ValueInCell(low, value.width, cell)
        places.pop(place, None)
        places[place] = None

    def find(self, value: Value, given: tuple[Linear, ...] = ()) -> Linear | None:
        """A cell that holds ``value`` where ``given`` are >= 0: the one stored last, but no private one where there is
        another."""
        cells = self.all(value, given)
        return max(enumerate(cells), key=lambda c: (not is_private(c[1]), c[0]))[1] if cells else None

    def all(self, value: Value, given: tuple[Linear, ...] = ()) -> list[Linear]:
        """All cells that hold ``value``, in the order of storing."""
        base, low = base_and_offset(value)
        return [p.cell + (low - p.low) // 8 for p in self.places.get(base, {})
                if p.low <= low and low + value.width <= p.low + p.bits and (low - p.low) % 8 == 0
                and implied(p.given, given)]

    def holds(self, value: Value, cell: Linear) -> bool:
        return cell in self.all(value)

    def kill(self, pointer: Linear, width: int, given: tuple[Linear, ...] = ()) -> None:
        """After a store of ``width`` bits at ``pointer`` where ``given`` are >= 0, as long as that is so: what it did
        not overwrite stays, down to bytes."""
        self.aliasing.go_on()
        for base, places in self.places.items():
            if any(self.overlap(p.cell, p.bits, pointer, width, given) for p in places):
                self.places[base] = {rest: None for p in places for rest in self._rest(p, pointer, width, given)}

    def _rest(self, place: ValueInCell, pointer: Linear, width: int, given: tuple[Linear, ...]) -> list[ValueInCell]:
        if not self.overlap(place.cell, place.bits, pointer, width, given):
            return [place]
        if place.bits <= 8 or not (place.cell - pointer).is_constant:
            return []
        half = place.bits // 2
        halves = (replace(place, low=place.low + n, bits=half, cell=place.cell + n // 8) for n in (0, half))
        return [piece for one in halves for piece in self._rest(one, pointer, width, given)]

    def add_conditional(self, inner: AvailableValues, conditions: tuple[Linear, ...]) -> None:
        """What ``inner`` holds where ``conditions`` are >= 0: after items that ran only there, or instead of them."""
        for base, places in inner.places.items():
            mine = self.places.setdefault(base, {})
            for place in places:
                if place not in mine:
                    mine[replace(place, given=place.given + conditions)] = None

    def kill_all(self, items: Iterable[Item]) -> None:
        """After ``items``, all of them, some of them or none of them."""
        for store in stores_of(items):
            self.kill(store.pointer, store.width)


def implied(wanted: tuple[Linear, ...], given: tuple[Linear, ...]) -> bool:
    """Whether all of ``wanted`` are >= 0 because some of ``given`` are."""
    return all(any((w - g).is_constant and (w - g).constant >= 0 for g in given) for w in wanted)
