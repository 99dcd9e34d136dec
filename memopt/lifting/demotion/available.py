"""Available-values analysis: which memory cells hold a given value at a point of the program.

Example: after ``v0 = load [a]; store [b] = v0`` the value v0 is available in the cells a and b. A store to a kills the
first, a store of half its width only that half.

It is a forward dataflow analysis: ``hold`` generates facts, ``kill`` removes them, and aliasing decides what a store
kills. Invariant: the cell that ``find`` returns contains exactly that value there, in every execution that reaches this
point.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.lifting.demotion.aliasing import Aliasing
from memopt.lifting.demotion.scalar_expansion import is_private
from memopt.lifting.values.bits import base_and_offset, extract
from memopt.lifting.values.canonical import made
from memopt.lifting.values.loop_tree import Item, StoreEvent, stores_of
from memopt.lifting.values.values import Atom, Node, Truth, Value

_Question = tuple[tuple[Linear, ...], Linear, int, Linear, int]


@dataclass(frozen=True, slots=True)
class ValueInCell:
    """A fact: ``cell`` holds the bits ``low`` .. ``low + bits - 1`` of a value, where all of ``given`` are >= 0.

    ``condition``: a truth value. Only where it holds is the cell certain to be memory that may be read.
    """

    low: int
    bits: int
    cell: Linear
    given: tuple[Linear, ...] = ()
    condition: Value | None = None


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

    def hold(self, value: Value, cell: Linear, condition: Value | None = None) -> None:
        """From here on ``cell`` holds ``value``; it counts as the one stored last. ``condition``: see ``ValueInCell``.
        """
        base, low = base_and_offset(value)
        places = self.places.setdefault(base, {})
        place = ValueInCell(low, value.width, cell, condition=condition)
        places.pop(place, None)
        places[place] = None

    def store(self, store: StoreEvent, given: tuple[Linear, ...] = ()) -> None:
        """The facts behind ``store``. Where it is conditional, its cell holds the new value or the one before."""
        pointer, width = store.pointer, store.width
        held: list[tuple[Value, Value | None]] = [(store.value, None)]
        match store.value:
            case Node("when", (truth, value), _):
                held = [(after, p.condition) for base, places in self.places.items() for p in places
                        if p.cell == pointer and p.bits == width and not p.given
                        for after in _chosen(truth, value, extract(base, p.low, width))]
        self.kill(pointer, width, given)
        for value, condition in held:
            self.hold(value, pointer, condition)

    def find(self, value: Value, given: tuple[Linear, ...] = ()) -> Linear | None:
        """A cell that holds ``value`` and may be read wherever ``given`` are >= 0; None if there is none.

        The one stored last is taken; cells of the program come before private ones.
        """
        found = self.place(value, given)
        return found[0] if found is not None and found[1] is None else None

    def place(self, value: Value, given: tuple[Linear, ...] = ()) -> tuple[Linear, Value | None] | None:
        """The cell of ``find``, and None; or a cell that may be read only where a condition holds, and this condition.
        """
        cells = enumerate(self._all(value, given))
        found = max(cells, key=lambda c: (c[1][1] is None, not is_private(c[1][0]), c[0]), default=None)
        return None if found is None else found[1]

    def all(self, value: Value, given: tuple[Linear, ...] = ()) -> list[Linear]:
        """All cells that hold ``value`` and may be read wherever ``given`` are >= 0, in the order of storing."""
        return [cell for cell, condition in self._all(value, given) if condition is None]

    def _all(self, value: Value, given: tuple[Linear, ...]) -> list[tuple[Linear, Value | None]]:
        base, low = base_and_offset(value)
        return [(p.cell + (low - p.low) // 8, p.condition) for p in self.places.get(base, {})
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

    def assume(self, known: Linear) -> None:
        """Drop conditions that hold because ``known`` >= 0."""
        for base, places in self.places.items():
            if any(_holds(p.condition, known) for p in places):
                dropped = (replace(p, condition=None) if _holds(p.condition, known) else p for p in places)
                self.places[base] = dict.fromkeys(dropped)

    def kill_all(self, items: Iterable[Item]) -> None:
        """Remove what any store in ``items`` may overwrite, whether or not it runs."""
        for store in stores_of(items):
            self.kill(store.pointer, store.width)


def _chosen(truth: Value, value: Value, other: Value) -> list[Value]:
    """``truth ? value : other`` as the states of paths that meet have it: inside an outer branch, or by itself."""
    found = [made("select", (truth, value, other), value.width)]
    match truth:
        case Node("and", (outer, inner), 1):
            found += [made("select", (outer, chosen, other), value.width) for chosen in _chosen(inner, value, other)]
    return found


def _holds(condition: Value | None, known: Linear) -> bool:
    match condition:
        case Truth(Atom(linear, False), _):
            return implied((linear,), (known,))
    return False


def implied(wanted: tuple[Linear, ...], given: tuple[Linear, ...]) -> bool:
    """Whether each of ``wanted`` is >= 0 because one of ``given``, which differs by a constant, is."""
    return all(any((w - g).is_constant and (w - g).constant >= 0 for g in given) for w in wanted)
