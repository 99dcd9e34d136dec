"""Demotion of registers to memory: a nest of loads, registers and stores becomes statements on memory cells.

Example::

    loop k < n: carry xmm1: 0 -> xmm1 + v0             [c] = 0
      v0 = load [a + 8*k]                        =>    for k < n
    store [c] = final(xmm1)                              [c] = add([c], [a + 8*k])

It undoes scalar promotion. A loaded value is replaced by the cell it came from, a carried register by its home cell
(``home_cells``). A value that no cell holds any more where it is used gets a private cell, written where the value was
last at hand (scalar expansion). Each statement then reads cells and writes one cell, so that dependence analysis sees
every dependence as one between memory accesses.

In: the outermost LoopNode. Out: ``Recovered``. Sound because a value is read only from a cell in which
``available`` proves it to be at that point. Whether a cell still holds a value is known only when the value is needed.
If it does not, the attempt is abandoned, and the next one keeps that value in a private cell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from typing import NoReturn

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import MemoryBacked
from memopt.lifting.demotion import outer_carried
from memopt.lifting.demotion.aliasing import Aliasing
from memopt.lifting.demotion.available import AvailableValues, implied
from memopt.lifting.demotion.case_split import Case, cases_of, contradictory
from memopt.lifting.demotion.dead_fp import keep_flag_effects
from memopt.lifting.demotion.demanded import Demanded
from memopt.lifting.demotion.expressions import ExpressionBuilder, Missing, element_of
from memopt.lifting.demotion.home_cells import CarriedPart, HomeCell, HomeFinder
from memopt.lifting.demotion.outer_carried import PrivateBacked
from memopt.lifting.demotion.scalar_expansion import ExpandedScalars, counters_of, is_private
from memopt.lifting.demotion.split_stores import unpacked
from memopt.lifting.demotion.statements import CellStatement, StatementItem, StatementLoop, conditional
from memopt.lifting.values.algebra import Obligation
from memopt.lifting.values.bits import base_and_offset, extract
from memopt.lifting.values.bounds import proved, sign_where
from memopt.lifting.values.canonical import canonical_nest
from memopt.lifting.values.loop_tree import Guarded, Item, LoadEvent, LoopNode, StoreEvent, loop_name
from memopt.lifting.values.values import Carried, Final, Loaded, Node, Value, constant_of, within

ATTEMPTS = 200  # each but the last puts one more value into a private cell


@dataclass(frozen=True, slots=True)
class Recovered:
    """The statements of a nest, and the cells that replace registers which the outermost loop carries.

    ``memory_backed``: values that a cell of the program holds, ``private_backed``: values in private cells.
    ``restored_registers``: locations that the rejoin restores as a whole by loading these cells.
    """

    loop: StatementLoop
    memory_backed: tuple[MemoryBacked, ...] = ()
    private_backed: tuple[PrivateBacked, ...] = ()
    restored_registers: frozenset[str] = frozenset()


def recover(node: LoopNode, aliasing: Aliasing, obligations: list[Obligation],
            always: Callable[[Linear, int], bool], used: frozenset[str] = frozenset()) -> Recovered:
    """Turn the lifted nest ``node`` into statements.

    What they rely on is appended to ``obligations``. ``always``: as in memopt.lifting.demotion.home_cells.HomeFinder;
    its answers matter only if the lift starts again. ``used``: registers that the outermost loop carries and the code
    behind it uses.

    Raises Rejected(CARRIED_VALUE) if a value passes from one iteration of the outermost loop to the next in a way that
    a version cannot take over, Rejected(NOT_A_NEST) if the loop stores nothing, and Rejected(OVERLAP) if a value is
    stored back unchanged to a cell that no statement accesses.
    """
    node = unpacked(canonical_nest(node))
    at_header = tuple(outer_carried.header_values(node, used))
    node = keep_flag_effects(node, at_header, aliasing.limits)
    demanded = Demanded.of(node, at_header)
    kept = _Kept()
    empty = AvailableValues(aliasing)
    for _ in range(ATTEMPTS):
        recovery = _Recovery(empty, demanded, kept, always)
        try:
            found = recovery.outermost(node)
        except _StartAgain:
            continue
        obligations += recovery.obligations
        return found
    raise Rejected(Reason.CARRIED_VALUE, "too many values would need private cells")


class _StartAgain(Exception):
    """Abandons an attempt. The next one keeps one more value in a private cell (``_Kept``)."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """The values that private cells hold, over all attempts."""

    copied: set[Value] = field(default_factory=set)  # stored when loaded, or at the header of their loop
    carried: set[Value] = field(default_factory=set)  # stored in front of the loop and at the end of each iteration
    final: set[Value] = field(default_factory=set)  # stored at the end of the last iteration

    def keep(self, value: Value) -> NoReturn:
        """Note ``value`` and raise _StartAgain; raise Rejected(CARRIED_VALUE) if it is noted in every way already."""
        for kind, values in ((Carried, self.carried), (Final, self.final), (Loaded | Carried, self.copied)):
            base, _ = base_and_offset(value)
            if isinstance(base, kind) and value not in values:
                if isinstance(base, Carried) and base.loop == "entry":
                    break
                values.add(value)
                raise _StartAgain
        raise Rejected(Reason.CARRIED_VALUE, "a stored value is in no memory cell")


@dataclass(frozen=True, slots=True)
class _Scope:
    """The loops and conditions around an item."""

    counters: tuple[str, ...] = ()  # outermost loop first
    owned: frozenset[Linear] = frozenset()  # home cells of these loops that a store was added for
    conditions: tuple[Linear, ...] = ()  # all >= 0
    # Accesses (address, bits) that the original performs in each iteration of these loops, under these conditions.
    certain: frozenset[tuple[Linear, int]] = frozenset()

    def under(self, conditions: tuple[Linear, ...]) -> _Scope:
        """The scope of items that run under ``conditions``, too."""
        return replace(self, conditions=self.conditions + conditions)


@dataclass(frozen=True, slots=True)
class _Recovery:
    """One attempt."""

    empty: AvailableValues
    demanded: Demanded
    kept: _Kept
    always: Callable[[Linear, int], bool]
    privates: ExpandedScalars = field(default_factory=ExpandedScalars)
    obligations: list[Obligation] = field(default_factory=list)
    unchanged: set[tuple[Linear, int]] = field(default_factory=set)  # (cell, bits) of stores left out as without effect

    def outermost(self, node: LoopNode) -> Recovered:
        """The whole nest. Raises _StartAgain or Rejected."""
        available = self.empty.copy()
        found, private_backed = self._outermost_carried(node, available)
        items, _ = self._loop(node, (), available, _Scope())
        if not items:
            raise Rejected(Reason.NOT_A_NEST, "the loop stores nothing")
        loop = items[-1]
        if len(items) > 1 or not isinstance(loop, StatementLoop):
            raise Rejected(Reason.CARRIED_VALUE,
                           f"a private cell would have to be set in front of the loop at {node.address:#x}")
        if not self.unchanged <= _accesses(loop):  # a cell in no footprint is not guarded against overlaps
            raise Rejected(Reason.OVERLAP, "a value is stored back to the cell it came from")
        return Recovered(loop, found, private_backed, outer_carried.restored_registers(node, self.homes.parts(node)))

    def _outermost_carried(self, node: LoopNode,
                 available: AvailableValues) -> tuple[tuple[MemoryBacked, ...], tuple[PrivateBacked, ...]]:
        """Cells for the values that the outermost loop carries: of the program, or private. ``available`` gets them."""
        parts = self.homes.parts(node)
        cells = outer_carried.invariant_cells(node, [p for p in parts if p.value not in self.kept.carried], self.homes)
        found: list[MemoryBacked] = []
        private_backed: list[PrivateBacked] = []
        for carried in parts:
            cell = cells.get(carried.value)
            if cell is not None and is_private(cell):
                cell = None
            made = None if cell is None else outer_carried.memory_backed(node, carried, cell, self.empty.aliasing)
            if cell is None or made is None:
                self.kept.carried.add(carried.value)
                cell = self.privates.cell(("carried", carried.value), ())
                private_backed.append(PrivateBacked(*outer_carried.restored_location(node, carried), cell))
            else:
                found.append(made)
            available.hold(carried.entry, cell.substitute({node.counter: Linear()}))
        return tuple(found), tuple(private_backed)

    def _require(self, linear: Linear, why: str, address: int, scope: _Scope) -> None:
        self.obligations.append(Obligation(linear, address, why, given=scope.conditions))

    @property
    def homes(self) -> HomeFinder:
        return HomeFinder(self.empty, self.demanded, self.always)

    # -- straight-line code -------------------------------------------------------------------------------------

    def _items(self, items: tuple[Item, ...], available: AvailableValues, scope: _Scope) -> list[StatementItem]:
        """The statements of ``items``; updates ``available`` from in front of them to behind them."""
        result: list[StatementItem] = []
        scope = replace(scope, certain=scope.certain | _certain(items))
        for number, item in enumerate(items):
            match item:
                case LoadEvent(identity, pointer, width, address):
                    value = Loaded(identity, width)
                    available.hold(value, pointer, None if (pointer, width) in scope.certain else item.condition)
                    result += self._copies(value, available, scope, address)
                case StoreEvent():
                    result += self._store(item, available, scope)
                case LoopNode():
                    statements, after = self._loop(item, items[number + 1:], available, scope)
                    result += statements
                    available.replace(after)
                case Guarded(conditions, inner):
                    under, inside = scope.under(conditions), available.copy()
                    if contradictory(under.conditions):
                        continue  # unreachable: the conditions of the branches around exclude each other
                    result += (conditional(s, conditions) for s in self._items(inner, inside, under))
                    before = available.copy()
                    available.kill_all(inner)
                    available.add_conditional(inside, conditions)
                    for condition in conditions:  # the items do not run if any condition fails
                        available.add_conditional(before, (-condition - 1,))
        return result

    def _copies(self, base: Value, available: AvailableValues, scope: _Scope, address: int) -> list[StatementItem]:
        """Statements that copy the parts of ``base`` noted in ``kept.copied`` to private cells."""
        result: list[StatementItem] = []
        for value in self.demanded.of_value(base):
            if value in self.kept.copied:
                cell = self.privates.cell(("copied", value), scope.counters)
                result += self._store(StoreEvent(cell, value, value.width, address), available, scope)
        return result

    def _store(self, store: StoreEvent, available: AvailableValues, scope: _Scope) -> list[StatementItem]:
        """The statements of one store; updates ``available``.

        One statement, one for each addition of a chain (``c = (c + x) + y``, an unrolled reduction), or one for each
        case of an affine condition. No statement if the cell holds the value already.
        """
        result: list[StatementItem] = []
        if isinstance(store.value, Node) and store.conditional and constant_of(store.value.operands[0]) == 0:
            return []
        cases = cases_of(store.value)
        if cases and available.find(store.value, scope.conditions) is None:
            return self._cases(store, cases, available, scope)
        link = self._chain_link(store, available)
        if link is not None:
            result += self._store(replace(store, value=link), available, scope)
            store = replace(store, beside=())
        elif not store.beside and available.holds(store.value, store.pointer):
            if not is_private(store.pointer):
                self.unchanged.add((store.pointer, store.width))
            return []  # the cell holds this value already
        result.append(self._statement(store, available, scope))
        available.store(store, scope.conditions)
        return result

    def _cases(self, store: StoreEvent, cases: list[Case], available: AvailableValues,
               scope: _Scope) -> list[StatementItem]:
        """The store once for each case, under the case's conditions; one statement if all cases give the same."""
        found: list[tuple[tuple[Linear, ...], list[StatementItem]]] = []
        after = available.copy()
        for case in cases:
            for need in case.needs:
                self._require(need, "a comparison does not wrap around", store.address, scope)
            conditions = tuple(c for c in case.conditions if not implied((c,), scope.conditions))
            under = scope.under(conditions)
            if not contradictory(under.conditions):
                found.append((conditions, self._store(replace(store, value=case.value), available.copy(), under)))
        after.store(store, scope.conditions)
        available.replace(after)
        if all(statements == found[0][1] for _, statements in found):  # the condition does not matter
            return found[0][1] if found else []
        return [conditional(s, conditions) for conditions, statements in found for s in statements]

    def _statement(self, store: StoreEvent, available: AvailableValues, scope: _Scope) -> CellStatement:
        def require(linear: Linear, why: str) -> None:
            self._require(linear, why, store.address, scope)

        builder = ExpressionBuilder(available, scope.conditions, require)
        element = element_of(store.value)
        try:
            expression = builder.stored(store.value, element, store.beside)
        except Missing as missing:
            self.kept.keep(self._demanded_part(missing.value))
        return CellStatement(store.pointer, tuple(builder.reads), expression, element, store.address,
                             tuple(builder.reads.values()), tuple(builder.indices))

    def _demanded_part(self, value: Value) -> Value:
        """The demanded part of a Loaded, Carried or Final value that contains ``value``: that is what a cell keeps."""
        base, low = base_and_offset(value)
        for whole in self.demanded.of_value(base):
            start = base_and_offset(whole)[1]
            if start <= low and low + value.width <= start + whole.width:
                return whole
        return value

    def _chain_link(self, store: StoreEvent, available: AvailableValues) -> Value | None:
        """``y + cell`` for a store of ``x + (y + cell)`` to ``cell``, to become a statement of its own; else None."""
        value = store.value
        if not isinstance(value, Node) or store.conditional or available.find(value) is not None or (
                len(value.operands) != 2):
            return None
        for position, inner in enumerate(value.operands):
            other = value.operands[1 - position]
            if (isinstance(inner, Node) and (inner.operator, inner.width) == (value.operator, value.width)
                    and available.find(inner) is None and self._reaches(inner, store.pointer, available)
                    and not self._reaches(other, store.pointer, available)):
                return inner
        return None

    def _reaches(self, value: Value, cell: Linear, available: AvailableValues) -> bool:
        return any(available.find(part) == cell for part in within(value, lambda part: available.find(part) is None))

    # -- loops --------------------------------------------------------------------------------------------------

    def _loop(self, loop: LoopNode, rest: tuple[Item, ...], available: AvailableValues, scope: _Scope) -> tuple[
            list[StatementItem], AvailableValues]:
        """The statements of a loop and of its initialisation, and the values available behind it.

        ``rest``: the items behind it.
        """
        if loop.trips is None:
            raise Rejected(Reason.TRIP_COUNT, f"the loop at {loop.address:#x}")
        homes = self._homes(loop, rest, available, scope)
        statements = self._initialised(loop, homes, available, scope)
        owned = scope.owned | {h.cell for h in homes if h.store}
        inner = replace(scope, counters=(*scope.counters, loop.counter), owned=owned)
        inside = available.copy()
        inside.assume(loop.trips - 1)
        added = self._end_of_body(loop, homes, scope)
        body = (*loop.items, *added)
        inside.kill_all(body)
        for home in homes:
            inside.hold(home.part.value, home.cell)
        items: list[StatementItem] = []
        for carried in loop.carried:
            items += self._copies(Carried(loop_name(loop), carried.location, carried.entry.width), inside, inner,
                                  loop.address)
        items += self._items(body, inside, inner)
        onwards = {loop.counter: Linear.symbol(loop.counter) + 1}
        for home in homes:
            if not inside.holds(home.part.following, home.cell.substitute(onwards)):
                self._refuse_home(loop, home)
        after = available.copy()
        after.kill_all(body)
        self._hold_finals(loop, homes, inside, after, scope)
        if items:
            statements.append(StatementLoop(loop.counter, loop.trips, tuple(items)))
        return statements, after

    def _initialised(self, loop: LoopNode, homes: list[HomeCell], available: AvailableValues,
                  scope: _Scope) -> list[StatementItem]:
        """The stores of entry values to home cells, in front of the loop."""
        statements: list[StatementItem] = []
        for home in homes:
            if home.initialise:
                entry = StoreEvent(home.cell, home.part.entry, home.part.entry.width, loop.address)
                statements += self._store(entry, available, scope)
        for home in homes:  # the store for one home may have overwritten another
            if not available.holds(home.part.entry, home.cell.substitute({loop.counter: Linear()})):
                self._refuse_home(loop, home)
        return statements

    def _end_of_body(self, loop: LoopNode, homes: list[HomeCell], scope: _Scope) -> list[Item]:
        """The stores to add at the end of the loop's body.

        First, in the last iteration, values that are used behind the loop go to their private cells (``kept.final``).
        Then carried values go to their home cells, each one after the others that read its old value.
        """
        assert loop.trips is not None
        result: list[Item] = []
        for location, value in loop.finals:
            for final in self.demanded.of_value(Final(loop_name(loop), location, value.width)):
                if final in self.kept.final:
                    _, low = base_and_offset(final)
                    cell = self.privates.cell(("final", final), scope.counters)
                    keep = StoreEvent(cell, extract(value, low, final.width), final.width, loop.address)
                    result.append(Guarded((Linear.symbol(loop.counter) - loop.trips + 1,), (keep,)))
        waiting = [h for h in homes if h.store]
        while waiting:
            home = next((h for h in waiting if not any(_uses(o.part.following, h.part.value) for o in waiting
                                                       if o is not h)), waiting[0])
            waiting.remove(home)
            result.append(StoreEvent(home.cell, home.part.following, home.part.following.width, loop.address))
        return result

    def _homes(self, loop: LoopNode, rest: tuple[Item, ...], available: AvailableValues,
               scope: _Scope) -> list[HomeCell]:
        """A home cell for each carried value.

        The search is repeated, because the home of a register that takes over another one's value follows from the
        other's home.
        """
        parts = self.homes.parts(loop)
        found: dict[Value, HomeCell] = {}
        for _ in parts:
            known = {value: home.cell for value, home in found.items() if not home.store}
            for carried in parts:
                if carried.value not in found and carried.value not in self.kept.carried:
                    home = self.homes.program_cell(loop, carried, rest, available, scope.owned, known)
                    if home is not None:
                        found[carried.value] = home
            if len(known) == sum(not home.store for home in found.values()):
                break
        return [found.get(p.value) or self._private_home(p, available, scope) for p in parts]

    def _private_home(self, carried: CarriedPart, available: AvailableValues, scope: _Scope) -> HomeCell:
        where = available.find(carried.entry)
        if where is not None and is_private(where) and (
                where in scope.owned or (counters_of(where) == set(scope.counters) and self._used_here_only(carried))):
            return HomeCell(carried, where, store=True, initialise=False)
        return HomeCell(carried, self.privates.cell(("carried", carried.value), scope.counters), True, True)

    def _used_here_only(self, carried: CarriedPart) -> bool:
        """Whether ``carried`` continues a sum of an earlier loop that nothing else uses, so that its cell can go on."""
        return isinstance(base_and_offset(carried.entry)[0], Final) and self.demanded.uses[carried.entry] == 1

    def _refuse_home(self, loop: LoopNode, home: HomeCell) -> None:
        """Give up ``home``: the next attempt takes a private cell. Rejected(CARRIED_VALUE) if it is one already."""
        if is_private(home.cell) or home.part.value in self.kept.carried:
            raise Rejected(Reason.CARRIED_VALUE, f"{_place(home.part.value)} in the loop at {loop.address:#x}")
        self.kept.carried.add(home.part.value)
        raise _StartAgain

    def _hold_finals(self, loop: LoopNode, homes: list[HomeCell], end: AvailableValues, after: AvailableValues,
                     scope: _Scope) -> None:
        """Add to ``after`` the cells that hold Final values; ``end``: the available values at the end of an iteration.

        The home of a carried value holds its Final value even if the loop runs zero times: that is then the entry
        value. Other Final values are available only if there is a last iteration. That is proved, or required for those
        that a private cell keeps.
        """
        assert loop.trips is not None
        for home in homes:
            if home.part.final is not None:
                after.hold(home.part.final, home.cell.substitute({loop.counter: loop.trips}))
        known = self.empty.aliasing
        runs = proved(sign_where(loop.trips - 1, known.ranges, scope.conditions, known.sample), known.limits)
        for location, value in loop.finals:
            for final in self.demanded.of_value(Final(loop_name(loop), location, value.width)):
                _, low = base_and_offset(final)
                cell = end.find(extract(value, low, final.width))
                if final in self.kept.final:
                    self._require(loop.trips - 1, "a loop whose last values are used runs at least once", loop.address,
                                  scope)
                    after.hold(final, self.privates.cell(("final", final), scope.counters))
                elif cell is not None and runs:
                    after.hold(final, cell.substitute({loop.counter: loop.trips - 1}))


def _certain(items: tuple[Item, ...]) -> frozenset[tuple[Linear, int]]:
    """The cells (address, bits) that are loaded or stored whenever ``items`` run."""
    return frozenset((i.pointer, i.width) for i in items if isinstance(i, LoadEvent | StoreEvent) and (
        i.condition is None if isinstance(i, LoadEvent) else not i.conditional))


def _uses(value: Value, piece: Value) -> bool:
    """Whether ``value`` is computed from any part of the carried value that ``piece`` is a part of."""
    base, _ = base_and_offset(piece)
    return any(base_and_offset(part)[0] == base for part in within(value))


def _place(value: Value) -> str:
    """The location of a carried value, for messages."""
    base, _ = base_and_offset(value)
    return base.location if isinstance(base, Carried) else "a value"


def _accesses(item: StatementItem) -> set[tuple[Linear, int]]:
    """The cells that statements access, with their bits."""
    if isinstance(item, CellStatement):
        return {(a, 8 * e.size) for a, e in zip(item.accesses, item.elements, strict=True)}
    return set().union(*map(_accesses, item.items))
