"""Undo the compiler's register tricks: turn loads, registers and stores into statements on memory cells.

A register that carries a value from iteration to iteration is replaced by a cell that holds the same value
(memopt.lifting.demotion.home_cells), a loaded value by the cell it came from. A value that no cell holds any more when
it is used
gets a private cell where it was last at hand. Each statement then reads cells and writes one cell, which is what
dependence analysis needs to see.

Whether a cell still holds a value is only known on the way, so an attempt that misses one starts again with the value
kept in a private cell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NoReturn

from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import MemoryBacked
from memopt.ir.scop import Apply
from memopt.lifting.demotion import outer_carried
from memopt.lifting.demotion.aliasing import Aliasing
from memopt.lifting.demotion.available import AvailableValues, implied
from memopt.lifting.demotion.case_split import Case, cases_of, contradictory
from memopt.lifting.demotion.dead_fp import keep_flag_effects
from memopt.lifting.demotion.demanded import Demanded
from memopt.lifting.demotion.expressions import ExpressionBuilder, Missing, element_of
from memopt.lifting.demotion.home_cells import CarriedPart, CarriedValues, HomeCell
from memopt.lifting.demotion.outer_carried import PrivateBacked
from memopt.lifting.demotion.scalar_expansion import ExpandedScalars, counters_of, is_private
from memopt.lifting.demotion.split_stores import unpacked
from memopt.lifting.demotion.statements import CellStatement, StatementItem, StatementLoop, conditional
from memopt.lifting.values.algebra import Obligation
from memopt.lifting.values.bits import base_and_offset, extract
from memopt.lifting.values.bounds import proved, sign_where
from memopt.lifting.values.canonical import canonical_nest
from memopt.lifting.values.loop_tree import Guarded, Item, LoadEvent, LoopNode, StoreEvent, loop_name
from memopt.lifting.values.values import Carried, Final, Loaded, Node, Value, within

ATTEMPTS = 200


@dataclass(frozen=True, slots=True)
class Recovered:
    """Statements, and what they read instead of registers that the outermost loop carries: cells that hold the same,
    or private cells. ``restored_registers``: locations that are thereby right as a whole at the rejoin."""

    loop: StatementLoop
    memory_backed: tuple[MemoryBacked, ...] = ()
    private_backed: tuple[PrivateBacked, ...] = ()
    restored: frozenset[str] = frozenset()


def recover(node: LoopNode, aliasing: Aliasing, obligations: list[Obligation],
            always: Callable[[Linear, int], bool], used: frozenset[str] = frozenset()) -> Recovered:
    """The statements of a lifted nest; what they rely on is added to ``obligations``. ``always``: see
    memopt.lifting.demotion.home_cells.Homes; what it is asked matters only when the lift starts again. ``used``:
    registers whose values the outermost loop carries to the code after it.

    Raises Rejected(CARRIED_VALUE) when a value passes from one iteration of the outermost loop to the next in a
    way that a version cannot take over.
    """
    node = unpacked(canonical_nest(node))
    at_header = tuple(outer_carried.at_header(node, used))
    node = keep_flag_effects(node, at_header)
    needs = Demanded.of(node, at_header)
    kept = _Kept()
    nothing = AvailableValues(aliasing)
    for _ in range(ATTEMPTS):
        recovery = _Recovery(nothing, needs, kept, always)
        try:
            found = recovery.outermost(node)
        except _StartAgain:
            continue
        obligations += recovery.obligations
        return found
    raise Rejected(Reason.CARRIED_VALUE, "too many values are in no memory cell")


class _StartAgain(Exception):
    """One more value is kept in a private cell from now on."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """Values to be kept in private cells: ``copied`` when they are loaded, or at the header of the loop that carries
    them; ``carried`` all the way; ``final`` in the last iteration."""

    copied: set[Value] = field(default_factory=set)
    carried: set[Value] = field(default_factory=set)
    final: set[Value] = field(default_factory=set)

    def keep(self, value: Value) -> NoReturn:
        """Raises _StartAgain, or Rejected when that has been tried."""
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
    """What is around: the counters of loops, the cells that their carried values live in and that they store to,
    and conditions."""

    counters: tuple[str, ...] = ()
    owned: frozenset[Linear] = frozenset()
    conditions: tuple[Linear, ...] = ()

    def under(self, conditions: tuple[Linear, ...]) -> _Scope:
        return replace(self, conditions=self.conditions + conditions)


@dataclass(frozen=True, slots=True)
class _Recovery:
    nothing: AvailableValues
    needs: Demanded
    kept: _Kept
    always: Callable[[Linear, int], bool]
    privates: ExpandedScalars = field(default_factory=ExpandedScalars)
    obligations: list[Obligation] = field(default_factory=list)
    unchanged: set[tuple[Linear, int]] = field(default_factory=set)  # cells (and bits) stored to without an effect

    def outermost(self, node: LoopNode) -> Recovered:
        held = self.nothing.copy()
        found, alone = self._outside(node, held)
        items, _ = self._loop(node, (), held, _Scope())
        if not items:
            raise Rejected(Reason.NOT_A_NEST, "the loop stores nothing")
        loop = items[-1]
        if len(items) > 1 or not isinstance(loop, StatementLoop):
            raise Rejected(Reason.CARRIED_VALUE, f"something happens before the loop at {node.address:#x}")
        if not self.unchanged <= _accesses(loop):  # nothing else would keep other arrays away from such a cell
            raise Rejected(Reason.OVERLAP, "a value is stored back to the cell it came from")
        return Recovered(loop, found, alone, outer_carried.restored_registers(node, self.homes.parts(node)))

    def _outside(self, node: LoopNode,
                 held: AvailableValues) -> tuple[tuple[MemoryBacked, ...], tuple[PrivateBacked, ...]]:
        """Where the outermost loop finds what it carries; ``held`` learns it."""
        parts = self.homes.parts(node)
        cells = outer_carried.cells(node, [p for p in parts if p.value not in self.kept.carried], self.homes)
        found: list[MemoryBacked] = []
        alone: list[PrivateBacked] = []
        for carried in parts:
            cell = cells.get(carried.value)
            if cell is not None and is_private(cell):
                cell = None
            made = None if cell is None else outer_carried.memory_backed(node, carried, cell, self.nothing.aliasing)
            if cell is None or made is None:
                self.kept.carried.add(carried.value)
                cell = self.privates.cell(("carried", carried.value), ())
                alone.append(PrivateBacked(*outer_carried.restorable(node, carried), cell))
            else:
                found.append(made)
            held.hold(carried.entry, cell.substitute({node.counter: Linear()}))
        return tuple(found), tuple(alone)

    def _require(self, linear: Linear, why: str, address: int, scope: _Scope) -> None:
        self.obligations.append(Obligation(linear, address, why, given=scope.conditions))

    @property
    def homes(self) -> CarriedValues:
        return CarriedValues(self.nothing, self.needs, self.always)

    # -- straight-line code -------------------------------------------------------------------------------------

    def _items(self, items: tuple[Item, ...], held: AvailableValues, scope: _Scope) -> list[StatementItem]:
        """The statements of ``items``; ``held`` is changed to what is held after them."""
        result: list[StatementItem] = []
        for number, item in enumerate(items):
            match item:
                case LoadEvent(identity, pointer, width, address):
                    value = Loaded(identity, width)
                    held.hold(value, pointer)
                    result += self._copies(value, held, scope, address)
                case StoreEvent():
                    result += self._store(item, held, scope)
                case LoopNode():
                    statements, after = self._loop(item, items[number + 1:], held, scope)
                    result += statements
                    held.replace(after)
                case Guarded(conditions, inner):
                    under, inside = scope.under(conditions), held.copy()
                    if contradictory(under.conditions):
                        continue  # where two branches that exclude each other are both taken
                    result += (conditional(s, conditions) for s in self._items(inner, inside, under))
                    before = held.copy()
                    held.kill_all(inner)
                    held.add_conditional(inside, conditions)
                    for condition in conditions:  # one that does not hold is enough
                        held.add_conditional(before, (-condition - 1,))
        return result

    def _copies(self, base: Value, held: AvailableValues, scope: _Scope, address: int) -> list[StatementItem]:
        """Statements that copy parts of ``base`` to private cells, where they are needed later on."""
        result: list[StatementItem] = []
        for value in self.needs.of_value(base):
            if value in self.kept.copied:
                cell = self.privates.cell(("copied", value), scope.counters)
                result += self._store(StoreEvent(cell, value, value.width, address), held, scope)
        return result

    def _store(self, store: StoreEvent, held: AvailableValues, scope: _Scope) -> list[StatementItem]:
        """One statement, or one for each link of an accumulation chain (an unrolled reduction), or for each case where
        an affine condition chooses."""
        result: list[StatementItem] = []
        cases = cases_of(store.value)
        if cases and held.find(store.value, scope.conditions) is None:
            return self._cases(store, cases, held, scope)
        link = self._link(store, held)
        if link is not None:
            result += self._store(replace(store, value=link), held, scope)
            store = replace(store, beside=())
        elif not store.beside and held.holds(store.value, store.pointer):
            if not is_private(store.pointer):
                self.unchanged.add((store.pointer, store.width))
            return []  # the cell holds this value already
        result.append(self._statement(store, held, scope))
        held.kill(store.pointer, store.width, scope.conditions)
        held.hold(store.value, store.pointer)
        return result

    def _cases(self, store: StoreEvent, cases: list[Case], held: AvailableValues, scope: _Scope) -> list[StatementItem]:
        found: list[tuple[tuple[Linear, ...], list[StatementItem]]] = []
        after = held.copy()
        for case in cases:
            for need in case.needs:
                self._require(need, "a comparison does not wrap around", store.address, scope)
            conditions = tuple(c for c in case.conditions if not implied((c,), scope.conditions))
            under = scope.under(conditions)
            if not contradictory(under.conditions):
                found.append((conditions, self._store(replace(store, value=case.value), held.copy(), under)))
        after.kill(store.pointer, store.width, scope.conditions)
        after.hold(store.value, store.pointer)
        held.replace(after)
        if all(statements == found[0][1] for _, statements in found):  # whichever it is
            return found[0][1] if found else []
        return [conditional(s, conditions) for conditions, statements in found for s in statements]

    def _statement(self, store: StoreEvent, held: AvailableValues, scope: _Scope) -> CellStatement:
        def require(linear: Linear, why: str) -> None:
            self._require(linear, why, store.address, scope)

        builder = ExpressionBuilder(held, scope.conditions, require)
        element = element_of(store.value)
        try:
            expression = builder.build(store.value, element)
            if store.beside:
                expression = Apply("beside", (expression, *(builder.build(v, element) for v in store.beside)), element)
        except Missing as missing:
            self.kept.keep(self._needed(missing.value))
        return CellStatement(store.pointer, tuple(builder.reads), expression, element, store.address,
                             tuple(builder.reads.values()), tuple(builder.indices))

    def _needed(self, value: Value) -> Value:
        """The part that is kept for ``value``: what is used of its base, as wide as it is used."""
        base, low = base_and_offset(value)
        for whole in self.needs.of_value(base):
            start = base_and_offset(whole)[1]
            if start <= low and low + value.width <= start + whole.width:
                return whole
        return value

    def _link(self, store: StoreEvent, held: AvailableValues) -> Value | None:
        """The inner step of ``x + (y + cell)`` when cell is the one stored to: it can be a statement of its own."""
        value = store.value
        if not isinstance(value, Node) or held.find(value) is not None or len(value.operands) != 2:
            return None
        for position, inner in enumerate(value.operands):
            other = value.operands[1 - position]
            if (isinstance(inner, Node) and (inner.operator, inner.width) == (value.operator, value.width)
                    and held.find(inner) is None
                    and self._reaches(inner, store.pointer, held) and not self._reaches(other, store.pointer, held)):
                return inner
        return None

    def _reaches(self, value: Value, cell: Linear, held: AvailableValues) -> bool:
        return any(held.find(part) == cell for part in within(value, lambda part: held.find(part) is None))

    # -- loops --------------------------------------------------------------------------------------------------

    def _loop(self, loop: LoopNode, rest: tuple[Item, ...], held: AvailableValues, scope: _Scope) -> tuple[
            list[StatementItem], AvailableValues]:
        """The statements of a loop and of what prepares it, and what is held after it."""
        if loop.trips is None:
            raise Rejected(Reason.TRIP_COUNT, f"the loop at {loop.address:#x}")
        homes = self._homes(loop, rest, held, scope)
        statements = self._prepared(loop, homes, held, scope)
        owned = scope.owned | {h.cell for h in homes if h.store}
        inner = replace(scope, counters=(*scope.counters, loop.counter), owned=owned)
        inside = held.copy()
        added = self._added(loop, homes, scope)
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
                self._give_up(loop, home)
        after = held.copy()
        after.kill_all(body)
        self._hold_finals(loop, homes, inside, after, scope)
        if items:
            statements.append(StatementLoop(loop.counter, loop.trips, tuple(items)))
        return statements, after

    def _prepared(self, loop: LoopNode, homes: list[HomeCell], held: AvailableValues,
                  scope: _Scope) -> list[StatementItem]:
        """Entry values stored to their homes, before the loop."""
        statements: list[StatementItem] = []
        for home in homes:
            if home.initialise:
                entry = StoreEvent(home.cell, home.part.entry, home.part.entry.width, loop.address)
                statements += self._store(entry, held, scope)
        for home in homes:  # a store for one may have overwritten another's
            if not held.holds(home.part.entry, home.cell.substitute({loop.counter: Linear()})):
                self._give_up(loop, home)
        return statements

    def _added(self, loop: LoopNode, homes: list[HomeCell], scope: _Scope) -> list[Item]:
        """What the end of an iteration does besides: in the last one, values that are used after the loop are kept;
        then carried values go home, none before another has used what it overwrites."""
        assert loop.trips is not None
        result: list[Item] = []
        for location, value in loop.finals:
            for final in self.needs.of_value(Final(loop_name(loop), location, value.width)):
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

    def _homes(self, loop: LoopNode, rest: tuple[Item, ...], held: AvailableValues, scope: _Scope) -> list[HomeCell]:
        """A home for each carried value; where one passes on what another held, that one's comes first."""
        parts = self.homes.parts(loop)
        found: dict[Value, HomeCell] = {}
        for _ in parts:
            known = {value: home.cell for value, home in found.items() if not home.store}
            for carried in parts:
                if carried.value not in found and carried.value not in self.kept.carried:
                    home = self.homes.program_cell(loop, carried, rest, held, scope.owned, known)
                    if home is not None:
                        found[carried.value] = home
            if len(known) == sum(not home.store for home in found.values()):
                break
        return [found.get(p.value) or self._private_home(p, held, scope) for p in parts]

    def _private_home(self, carried: CarriedPart, held: AvailableValues, scope: _Scope) -> HomeCell:
        where = held.find(carried.entry)
        if where is not None and is_private(where) and (
                where in scope.owned or (counters_of(where) == set(scope.counters) and self._used_here_only(carried))):
            return HomeCell(carried, where, store=True, initialise=False)
        return HomeCell(carried, self.privates.cell(("carried", carried.value), scope.counters), True, True)

    def _used_here_only(self, carried: CarriedPart) -> bool:
        """An accumulation that a loop before has begun, and that nothing else looks at."""
        return isinstance(base_and_offset(carried.entry)[0], Final) and self.needs.uses[carried.entry] == 1

    def _give_up(self, loop: LoopNode, home: HomeCell) -> None:
        """Not this home."""
        if is_private(home.cell) or home.part.value in self.kept.carried:
            raise Rejected(Reason.CARRIED_VALUE, f"{_place(home.part.value)} in the loop at {loop.address:#x}")
        self.kept.carried.add(home.part.value)
        raise _StartAgain

    def _hold_finals(self, loop: LoopNode, homes: list[HomeCell], end: AvailableValues, after: AvailableValues,
                     scope: _Scope) -> None:
        """What is known of the values that the loop leaves behind. Where it may not run at all, that is the entry
        value of a carried location; anything else is only known when there is a last iteration."""
        assert loop.trips is not None
        for home in homes:
            if home.part.final is not None:
                after.hold(home.part.final, home.cell.substitute({loop.counter: loop.trips}))
        known = self.nothing.aliasing
        runs = proved(sign_where(loop.trips - 1, known.ranges, scope.conditions, known.sample), known.limits)
        for location, value in loop.finals:
            for final in self.needs.of_value(Final(loop_name(loop), location, value.width)):
                _, low = base_and_offset(final)
                cell = end.find(extract(value, low, final.width))
                if final in self.kept.final:
                    self._require(loop.trips - 1, "a value is used that a loop left behind", loop.address, scope)
                    after.hold(final, self.privates.cell(("final", final), scope.counters))
                elif cell is not None and runs:
                    after.hold(final, cell.substitute({loop.counter: loop.trips - 1}))


def _uses(value: Value, piece: Value) -> bool:
    base, _ = base_and_offset(piece)
    return any(base_and_offset(part)[0] == base for part in within(value))


def _place(value: Value) -> str:
    base, _ = base_and_offset(value)
    return base.location if isinstance(base, Carried) else "a value"


def _accesses(item: StatementItem) -> set[tuple[Linear, int]]:
    if isinstance(item, CellStatement):
        return {(a, 8 * e.size) for a, e in zip(item.accesses, item.elements, strict=True)}
    return set().union(*map(_accesses, item.items))
