"""Where a value lives that a register carries from iteration to iteration.

Its home is a cell of the program that holds the same value: one the loop itself stores it to, or the one it is stored
to after the loop. Where there is none, or where the program uses that cell otherwise, it is a private cell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from memopt.ir.linear import Linear
from memopt.lifting.demotion.available import AvailableValues
from memopt.lifting.demotion.demanded import Demanded
from memopt.lifting.demotion.scalar_expansion import is_private
from memopt.lifting.values.bits import base_and_offset, extract
from memopt.lifting.values.loop_tree import Guarded, Item, LoadEvent, LoopNode, StoreEvent, loop_name
from memopt.lifting.values.values import Carried, Final, Loaded, Value, within


@dataclass(frozen=True, slots=True)
class CarriedPart:
    """A carried value as it is used: ``value`` at the header; ``final`` is what its location holds after the loop,
    ``finals`` all locations that hold the same then."""

    value: Value
    entry: Value
    following: Value
    final: Value | None
    finals: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class HomeCell:
    """``cell`` holds the value at the header of each iteration."""

    part: CarriedPart
    cell: Linear
    store: bool  # the loop does not store it itself: add a store at the end of the body
    initialise: bool  # nor is the entry value there: add a store before the loop


@dataclass(frozen=True, slots=True)
class CarriedValues:
    """``always(distance, 0)``: whether two cells are one, if need be when the lift starts again
    (memopt.lifting.reroll.proofs.Captured)."""

    nothing: AvailableValues
    needs: Demanded
    always: Callable[[Linear, int], bool]

    def parts(self, loop: LoopNode) -> list[CarriedPart]:
        """The carried values that matter, in the widths they are used in."""
        name = loop_name(loop)
        result = []
        for carried in loop.carried:
            whole = Carried(name, carried.location, carried.entry.width)
            for value in self.needs.of_value(whole):
                result.append(self._part(loop, carried.location, value, carried.entry, carried.following))
        return result

    @staticmethod
    def _part(loop: LoopNode, location: str, value: Value, entry: Value, following: Value) -> CarriedPart:
        _, low = base_and_offset(value)
        width = value.width
        last = extract(following, low, width)
        finals = {place: extract(Final(loop_name(loop), place, v.width), low, width) for place, v in loop.finals
                  if v.width == entry.width and extract(v, low, width) == last}
        return CarriedPart(value, extract(entry, low, width), last, finals.get(location), tuple(finals.values()))

    def program_cell(self, loop: LoopNode, carried: CarriedPart, rest: tuple[Item, ...], held: AvailableValues,
                     owned: frozenset[Linear], known: Mapping[Value, Linear]) -> HomeCell | None:
        """A home among the program's cells; ``owned`` are homes of the loops around, ``rest`` follows the loop.
        ``known``: cells that hold other carried values at the header (registers that pass values on, one to the
        next)."""
        flow = self.flow(loop.items, known)
        for following in flow.all(carried.following):
            cell = following.substitute({loop.counter: Linear.symbol(loop.counter) - 1})
            start = cell.substitute({loop.counter: Linear()})
            if held.holds(carried.entry, start):
                return HomeCell(carried, cell, store=False, initialise=False)
            self._ask(held.all(carried.entry), start)
        where = held.find(carried.entry)
        after = where if where in owned else self._stored_after(carried.finals, rest)
        if after is None or any(self._touches(i, after, carried.entry.width) for i in loop.items):
            return None
        return HomeCell(carried, after, store=True, initialise=not held.holds(carried.entry, after))

    def _ask(self, cells: list[Linear], start: Linear) -> None:
        """Compilers load the first value through one register, those of later iterations through another: whether one
        of ``cells`` is ``start`` after all is known when the lift starts again."""
        known = self.nothing.aliasing.sample
        for distance in (cell - start for cell in cells):
            if distance.symbols <= known.keys() and not is_private(distance) and distance.evaluate(known) == 0:
                self.always(distance, 0)

    def _stored_after(self, finals: tuple[Value, ...], rest: tuple[Item, ...]) -> Linear | None:
        """The cell that one of ``finals`` ends in, through later loops that go on accumulating; nothing in between
        may touch that cell."""
        for number, item in enumerate(rest):
            cell: Linear | None = None
            match item:
                case StoreEvent(pointer, value, width, _) if any(
                        f.width == width and f in within(value) for f in finals):
                    cell = pointer
                case LoopNode():
                    for carried in self.parts(item):
                        if carried.entry in finals:
                            cell = self._stored_after(carried.finals, rest[number + 1:])
            if cell is not None:
                between = rest[:number + isinstance(item, LoopNode)]
                return None if any(self._touches(i, cell, finals[0].width) for i in between) else cell
        return None

    def flow(self, items: tuple[Item, ...], known: Mapping[Value, Linear] = MappingProxyType({})) -> AvailableValues:
        """What is held at the end of ``items``, starting from what is ``known``."""
        held = self.nothing.copy()
        for carried, home in known.items():
            held.hold(carried, home)
        for item in items:
            match item:
                case LoadEvent(identity, pointer, width, _):
                    held.hold(Loaded(identity, width), pointer)
                case StoreEvent(pointer, value, width, _):
                    held.kill(pointer, width)
                    held.hold(value, pointer)
                case LoopNode():
                    held.kill_all(item.items)
                    end = self.flow(item.items)
                    for location, value in item.finals:
                        cell = end.find(value)
                        if cell is not None and item.trips is not None:
                            final = Final(loop_name(item), location, value.width)
                            held.hold(final, cell.substitute({item.counter: item.trips - 1}))
                case Guarded():
                    held.kill_all(item.items)
        return held

    def _touches(self, item: Item, cell: Linear, width: int) -> bool:
        match item:
            case LoadEvent(_, pointer, bits, _) | StoreEvent(pointer, _, bits, _):
                return self.nothing.overlap(cell, width, pointer, bits)
        return any(self._touches(i, cell, width) for i in item.items)
