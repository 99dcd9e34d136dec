"""Home cells: the memory cell that takes the place of a register carried by a loop.

Example: in ``s = 0; for (k...) s += a[k]; c[j] = s;`` the compiler keeps s in a register. Its home is the cell
``c[j]``, and the loop becomes ``c[j] = 0; for (k...) c[j] += a[k];``.

In: the loop, the items after it, and the values available in front of it. Out: for each carried value a cell of the
program that holds the same value at every header: one that the loop itself stores the value to, or the one that the
value is stored to after the loop. None where there is no such cell, or where the program uses the cell otherwise;
``recover`` then makes a private cell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.lifting.demotion.available import AvailableValues
from memopt.lifting.demotion.demanded import Demanded
from memopt.lifting.demotion.scalar_expansion import is_private
from memopt.lifting.values.bits import base_and_offset, extract
from memopt.lifting.values.loop_tree import Guarded, Item, LoadEvent, LoopNode, StoreEvent, loop_name
from memopt.lifting.values.values import Carried, Final, Loaded, Value, within


@dataclass(frozen=True, slots=True)
class CarriedPart:
    """A carried value, or the part of it that is demanded."""

    value: Value  # at the header, part of a Carried value
    entry: Value  # at the first header
    following: Value  # at the end of an iteration
    final: Value | None  # what its location holds behind the loop
    finals: tuple[Value, ...]  # the Final values of all locations that hold the same then


@dataclass(frozen=True, slots=True)
class HomeCell:
    """``cell`` holds the carried value ``part`` at the header of each iteration."""

    part: CarriedPart
    cell: Linear
    store: bool  # the loop does not store the value there itself: add a store at the end of the body
    initialise: bool  # the entry value is not there: add a store in front of the loop


@dataclass(frozen=True, slots=True)
class HomeFinder:
    """Finds home cells among the cells of the program."""

    empty: AvailableValues  # no facts, to start from
    demanded: Demanded
    # always(distance, 0): whether two cells are one and the same. If they are at the captured values only, the lift
    # starts again with that as a guard (memopt.lifting.reroll.proofs.CapturedState).
    always: Callable[[Linear, int], bool]

    def parts(self, loop: LoopNode) -> list[CarriedPart]:
        """The demanded parts of the values that ``loop`` carries."""
        name = loop_name(loop)
        result = []
        for carried in loop.carried:
            whole = Carried(name, carried.location, carried.entry.width)
            for value in self.demanded.of_value(whole):
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

    def program_cell(self, loop: LoopNode, carried: CarriedPart, rest: tuple[Item, ...], available: AvailableValues,
                     owned: frozenset[Linear], known: Mapping[Value, Linear]) -> HomeCell | None:
        """A home cell for ``carried`` among the program's cells; None if there is none.

        The first choice is a cell that the loop stores the value to, if it holds the entry value at the first header.
        The second is the home of a loop around it (``owned``), or the cell that the items ``rest`` behind the loop
        store the value to, provided that the loop does not touch it. ``known``: cells that hold other carried values at
        the header, for registers that hand values on to each other.
        """
        flow = self.flow(loop.items, known)
        for following in flow.all(carried.following):
            cell = following.substitute({loop.counter: Linear.symbol(loop.counter) - 1})
            start = cell.substitute({loop.counter: Linear()})
            if available.holds(carried.entry, start):
                return HomeCell(carried, cell, store=False, initialise=False)
            self._ask(available.all(carried.entry), start)
        where = available.find(carried.entry)
        after = where if where in owned else self._stored_after(carried.finals, rest)
        if after is None or any(self._touches(i, after, carried.entry.width) for i in loop.items):
            return None
        return HomeCell(carried, after, store=True, initialise=not available.holds(carried.entry, after))

    def _ask(self, cells: list[Linear], start: Linear) -> None:
        """Request (``always``) that one of ``cells`` is the cell ``start``, if they are equal at the captured values.

        Compilers may load the entry value through another pointer register than the loop uses.
        """
        known = self.empty.aliasing.sample
        for distance in (cell - start for cell in cells):
            if distance.symbols <= known.keys() and not is_private(distance) and distance.evaluate(known) == 0:
                self.always(distance, 0)

    def _stored_after(self, finals: tuple[Value, ...], rest: tuple[Item, ...]) -> Linear | None:
        """The cell that the items ``rest`` store one of ``finals`` to, perhaps after later loops have accumulated more.

        None if anything in between touches that cell.
        """
        for number, item in enumerate(rest):
            cell: Linear | None = None
            match item:
                case StoreEvent(pointer, value, width, _) if not item.conditional and any(
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
        """The available values at the end of ``items``; ``known``: values that cells hold in front of them."""
        available = self.empty.copy()
        for carried, home in known.items():
            available.hold(carried, home)
        for item in items:
            match item:
                case LoadEvent(identity, pointer, width, _, condition):
                    available.hold(Loaded(identity, width), pointer, condition)
                case StoreEvent():
                    available.store(item)
                case LoopNode():
                    available.kill_all(item.items)
                    end = self.flow(item.items)
                    for location, value in item.finals:
                        cell = end.find(value)
                        if cell is not None and item.trips is not None:
                            final = Final(loop_name(item), location, value.width)
                            available.hold(final, cell.substitute({item.counter: item.trips - 1}))
                case Guarded():
                    available.kill_all(item.items)
        return available

    def _touches(self, item: Item, cell: Linear, width: int) -> bool:
        match item:
            case LoadEvent(_, pointer, bits, _) | StoreEvent(pointer, _, bits, _):
                return self.empty.overlap(cell, width, pointer, bits)
            case LoopNode(items=items) | Guarded(items=items):
                return any(self._touches(i, cell, width) for i in items)
        return False
