"""Classifies what a loop carries: values that an iteration takes over from the one before it.

Example: ``for (...) { s += p->x; p = p->next; }`` carries s, a sum, and p, a recurrence. Counters, which grow by the
same amount in each iteration, are not carried: each iteration can compute its own.

In: the values of a function and its loop nesting. Out: for each loop the carried locations, each a sum, a recurrence or
not known; whether a dependence in the frame is that of an induction; whether a load and a store are those of a sum.

- A phi at the header is carried if the loop computes with it. If the loop only hands it on, it is the last value of a
  variable, which no iteration reads.
- A loop that ends by its data (``break``) carries its exit: an iteration runs only if none before it has ended the
  loop.
- It is a recurrence if its new value depends on its old one.
- Else the iteration before has computed it from other values. It is not carried if it is a reload
  (``memopt.recurrences.reloads``), else not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import cached_property

from memopt.cfg.dominators import dominates
from memopt.cfg.loop_nesting import Nesting
from memopt.ir.frozen import dataclass
from memopt.ir.graph import Loop
from memopt.recurrences.demand import demanded
from memopt.recurrences.inductions import step_of
from memopt.recurrences.reloads import Reloads
from memopt.recurrences.sums import COPIES, original, sum_of
from memopt.recurrences.values import CALL, ENTRY, LITERAL, LOAD, PHI, UNKNOWN, Value, Values

_SAME_DEPTH = 12  # how deep two pointers are compared


class Recurrence(Enum):
    """How a value is carried."""

    SUM = "sum"  # x = x + ...
    SERIAL = "serial"  # the new value depends on the old one in another way
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Carried:
    """A register, lane or frame slot that a loop carries."""

    location: str
    recurrence: Recurrence


class Recurrences:
    """What the loops of a function carry."""

    def __init__(self, values: Values, nesting: Nesting) -> None:
        self._values, self._nesting = values, nesting
        self._known_steps: dict[int, Mapping[int, str]] = {}  # by the header of the loop
        self._known_copies: dict[int, set[Value]] = {}

    def carried(self, loop: Loop, exchange: frozenset[int]) -> tuple[Carried, ...]:
        """The locations that ``loop`` carries, without inductions. ``exchange``: instructions that read memory which
        the loop writes, and those that write memory which it reads."""
        if self._values.not_understood & loop.blocks:
            return (Carried("an instruction that is not understood", Recurrence.UNKNOWN),)
        found = []
        reloads = Reloads(self._values, self._nesting, loop, exchange, {
            original(self._values, self._values.operands(store)[1]) for stores in self._stores.values()
            for store in stores if store.block in loop.blocks})
        for phi in self._values.phis_at(loop.header):
            recurrence = self._recurrence(loop, phi, exchange)
            if recurrence is Recurrence.UNKNOWN and reloads.is_reload(phi):
                continue
            if recurrence is not None:
                found.append(Carried(phi.location, recurrence))
        exits = {source for source, _ in loop.exits}
        found += [Carried("an exit that depends on data", Recurrence.UNKNOWN) for test in self._values.tests(exits)
                  if not self._is_count(loop, test, exchange)][:1]
        return tuple(sorted(found, key=lambda c: c.location))

    def is_induction(self, loop: Loop, first: int, second: int) -> bool:
        """Whether the instructions at ``first`` and ``second`` access frame slots whose values are inductions of
        ``loop``, or do not change in it."""
        return self._all_slots(first, second, lambda slot: self._slot_steps(loop, slot))

    def is_sum(self, loop: Loop, first: int, second: int) -> bool:
        """Whether the instructions at ``first`` and ``second`` both belong to sums with one operation that ``loop``
        carries in memory or in a frame slot: ``x[k] += y``."""
        if self._all_slots(first, second, lambda slot: self._slot_sums(loop, slot)):
            return True
        kinds = self._steps(loop)
        return first in kinds and kinds[first] == kinds.get(second)

    # -- the graph of values ---------------------------------------------------------------------------------------

    @cached_property
    def _made_of(self) -> Mapping[Value, frozenset[Value]]:
        return demanded(self._values)

    @cached_property
    def _users(self) -> Mapping[Value, list[Value]]:
        users: dict[Value, list[Value]] = {}
        for user, operands in self._made_of.items():
            for operand in operands:
                users.setdefault(operand, []).append(user)
        return users

    @cached_property
    def _stores(self) -> Mapping[int, list[Value]]:
        found: dict[int, list[Value]] = {}
        for effect in self._values.effects:
            if effect.operator == "store":
                found.setdefault(effect.address, []).append(effect)
        return found

    def _users_in(self, loop: Loop) -> Callable[[Value], Iterator[Value]]:
        """What ``loop`` makes of a value, but for copies that it only hands on to the code behind it."""
        copies = self._computed_with(loop)
        return lambda value: (user for user in self._users.get(value, ()) if user.block in loop.blocks and (
            user.operator not in COPIES or user in copies))

    def _computed_with(self, loop: Loop) -> set[Value]:
        """The copies of values, phis among them, that ``loop`` computes with."""
        if loop.header not in self._known_copies:
            computed = (value for value in self._made_of if value.block in loop.blocks and value.operator not in COPIES)
            copies = {one for value in computed for one in self._made_of[value] if one.operator in COPIES}
            self._known_copies[loop.header] = _reached(copies, lambda value: (
                one for one in self._made_in(loop)(value) if one.operator in COPIES))
        return self._known_copies[loop.header]

    def _made_in(self, loop: Loop) -> Callable[[Value], Iterator[Value]]:
        return lambda value: (one for one in self._made_of.get(value, ()) if one.block in loop.blocks)

    # -- registers and slots ---------------------------------------------------------------------------------------

    def _recurrence(self, loop: Loop, phi: Value, exchange: frozenset[int] | None = None) -> Recurrence | None:
        """How ``loop`` carries ``phi``, a phi at its header; None if it does not, or by an induction. ``exchange``: as
        in ``carried``; None: unknown."""
        users = self._users_in(loop)
        if phi not in self._computed_with(loop) or step_of(
                self._values, self._nesting, loop, phi) is not None:
            return None
        cycle = _reached(users(phi), users) & _reached((phi,), self._made_in(loop))
        if phi not in cycle:
            return Recurrence.UNKNOWN
        ends = {store for value in cycle for store in users(value) if exchange is not None
                and store.operator == "store" and store.address not in exchange and self._ends_with(loop, phi, store)}
        found = sum_of(self._values, self._made_of, loop, cycle, users, ends=ends)
        return Recurrence.SERIAL if found is None else Recurrence.SUM

    def _ends_with(self, loop: Loop, phi: Value, store: Value) -> bool:
        """Whether ``store`` writes to one cell, in each iteration that adds to the sum ``phi``, what the sum is then:
        the last iteration leaves the whole sum there."""
        target, stored = self._values.operands(store)
        if any(v.operator in (PHI, LOAD, CALL) for v in _reached((target,), self._made_in(loop))
               if v.block in loop.blocks):
            return False
        pending = [(source, value) for source, value in self._values.inputs[phi] if source in loop.blocks]
        seen = set(pending)
        while pending:
            source, value = pending.pop()
            value = self._values.find(value)
            if value is stored and dominates(self._values.dominators, store.block, source):
                continue
            if value is phi:
                continue
            if value.operator != PHI or value.block == loop.header or value.block not in loop.blocks:
                return False
            new = {(s, v) for s, v in self._values.inputs[value]} - seen
            seen |= new
            pending += new
        return True

    def _is_count(self, loop: Loop, test: Value, exchange: frozenset[int]) -> bool:
        """Whether ``test`` looks at inductions of ``loop`` and at what does not change in it only."""
        pending, seen = [test], {test}
        while pending:
            value = pending.pop()
            steps = value.operator == PHI and value.block == loop.header and self._recurrence(loop, value) is None
            if value.block not in loop.blocks or steps:
                continue
            varies = value.operator == LOAD and (value.address in exchange or any(
                v.operator == PHI for v in _reached((value,), self._made_in(loop))))
            if varies or value.operator in (CALL, UNKNOWN):
                return False
            new = set(self._values.operands(value)) - seen
            pending += new
            seen |= new
        return True

    def _all_slots(self, first: int, second: int, holds: Callable[[str], bool]) -> bool:
        one, other = (self._values.slots.get(address, set()) for address in (first, second))
        return bool(one & other) and all(map(holds, one & other))

    def _slot_steps(self, loop: Loop, slot: str) -> bool:
        value = self._values.at(loop.header, slot)
        if value is None:
            return False
        unchanged = value.operator != PHI or value.block != loop.header
        return unchanged or step_of(self._values, self._nesting, loop, value) is not None

    def _slot_sums(self, loop: Loop, slot: str) -> bool:
        value = self._values.at(loop.header, slot)
        return (value is not None and value.operator == PHI and value.block == loop.header
                and self._recurrence(loop, value) is Recurrence.SUM)

    # -- sums in memory --------------------------------------------------------------------------------------------

    def _steps(self, loop: Loop) -> Mapping[int, str]:
        """The operation of each instruction in ``loop`` that loads or stores for a sum in memory, and for nothing
        else."""
        if loop.header not in self._known_steps:
            found: dict[Value, str] = {}
            loads: dict[tuple[str, int, int], list[Value]] = {}
            accesses = [load for group in self._values.loads.values() for load in group if load.block in loop.blocks]
            for load in accesses:
                loads.setdefault(_form(self._values.operands(load)[0]), []).append(load)
            stores = [store for group in self._stores.values() for store in group if store.block in loop.blocks]
            for store in stores:
                for load in loads.get(_form(self._values.operands(store)[0]), ()):
                    if kind := self._step(loop, load, store):
                        found[store] = found[load] = kind
            kinds: dict[int, set[str | None]] = {}
            for access in (*accesses, *stores):
                kinds.setdefault(access.address, set()).add(found.get(access))
            self._known_steps[loop.header] = {
                address: kind for address, (kind, *more) in kinds.items() if kind is not None and not more}
        return self._known_steps[loop.header]

    def _step(self, loop: Loop, load: Value, store: Value) -> str | None:
        """The operation if ``store`` writes, to where ``load`` has read, what was read and a sum of other values."""
        target, stored = self._values.operands(store)
        if not self._same(target, self._values.operands(load)[0]):
            return None
        users = self._users_in(loop)
        behind = _reached((stored,), lambda value: () if value.operator in (LOAD, CALL) else self._made_in(loop)(value))
        if load not in behind:
            return None
        chain = _reached((load,), users) & behind
        if any(value.block == loop.header and value.operator == PHI for value in chain):
            return None
        ends = {user for value in chain for user in users(value)
                if user.operator == "store" and self._same(self._values.operands(user)[0], target)
                and self._values.operands(user)[1] is value}
        return sum_of(self._values, self._made_of, loop, chain, users, load, ends)

    def _same(self, one: Value, other: Value, depth: int = _SAME_DEPTH) -> bool:
        """Whether two values are computed alike from the same values."""
        if one is other:
            return True
        if depth == 0 or _form(one) != _form(other) or (
                one.operator in (PHI, LOAD, CALL, UNKNOWN, ENTRY, LITERAL)):
            return False
        pairs = zip(self._values.operands(one), self._values.operands(other), strict=True)
        return all(self._same(first, second, depth - 1) for first, second in pairs)


def _form(pointer: Value) -> tuple[str, int, int]:
    """Equal for pointers that are computed alike."""
    return pointer.operator, pointer.width, pointer.number


def _reached(first: Iterable[Value], following: Callable[[Value], Iterable[Value]]) -> set[Value]:
    found = set(first)
    pending = list(found)
    while pending:
        new = set(following(pending.pop())) - found
        found |= new
        pending += new
    return found
