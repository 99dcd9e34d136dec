"""Which locations of a loop advance by a constant: guess, then verify.

A loop is run once with every location it writes unknown (the trial); a location that moved by a constant is guessed
to be ``entry + step * counter``. The loop is run again from that guess, which must reproduce itself at the back edge
(the proof by induction); what does not is demoted to an opaque carried value.

Inside the trial of an outer loop the same loop comes by again and again: what was guessed for it there is tried first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import lcm

from memopt.cfg.dead_registers import dead_registers
from memopt.ir.graph import Loop
from memopt.ir.linear import Linear
from memopt.ir.operations import CLOBBERED, Forget, Put
from memopt.ir.reasons import Rejected
from memopt.lifting.execution.assumptions import GENERAL, SLOT, Assumptions, State, bits_of, slot_range
from memopt.lifting.execution.iteration import Iteration, IterationExecutor
from memopt.lifting.execution.memory import MemoryModel, stack_stores
from memopt.lifting.values.algebra import LOOP_COUNTER, TRIAL, Algebra, Obligation, fixable
from memopt.lifting.values.requests import AssumeAll, AssumeEqual, DeferExtension
from memopt.lifting.values.values import Carried, Integer, LiveVector, Node, Value, centred, constant

WRAPPED = 1 << 31  # at least: what a 32-bit number that wraps around seems to move by
LONGEST_PERIOD = 4

Found = tuple[dict[str, int], frozenset[str], Iteration, State]


@dataclass(frozen=True, slots=True)
class Guess:
    """``slots`` were found to be written on the way."""

    steps: dict[str, int]
    opaque: frozenset[str]
    slots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Induction:
    """``guesses``: of trials inside trials, by loop and by what holds a number at its entry; ``written``: what the
    blocks of a loop write, locations and stack slots."""

    facts: Assumptions
    algebra: Algebra
    places: MemoryModel
    walker: IterationExecutor
    guesses: dict[tuple[str, frozenset[str]], Guess] = field(default_factory=dict)
    written: dict[int, tuple[frozenset[str], tuple[str, ...]]] = field(default_factory=dict)

    def of(self, loop: Loop, entry: State) -> Found:
        """Guess steps by a trial, verify them, demote until they hold; the last walk is the verified one."""
        if not self.algebra.trial or self.algebra.exploring:
            return self._guessed_and_verified(loop, entry)
        numbers = frozenset(p for p in self._written(loop, entry) if isinstance(entry.get(p), Integer))
        known = self.guesses.get((self.walker.name(loop), numbers))
        found = None if known is None else self._again(loop, entry, known)
        if found is None:
            before = dict(entry)
            found = self._guessed_and_verified(loop, entry)
            if found[2].state is not None and all(entry[p] is v for p, v in before.items()):
                slots = tuple(p for p in entry if p not in before)
                self.guesses[self.walker.name(loop), numbers] = Guess(found[0], found[1], slots)
        return found

    def _again(self, loop: Loop, entry: State, guess: Guess) -> Found | None:
        """What ``guess`` leads to, None when it does not hold as it is."""
        for slot in guess.slots:
            entry[slot] = entry.get(slot) or self.places.live_slot(slot)
        if not all(isinstance(entry.get(p), Integer) for p in guess.steps) or guess.opaque - entry.keys():
            return None
        self.algebra.sample[self.walker.counter(loop)] = 0
        mark, ranges = len(self.algebra.obligations), dict(self.algebra.ranges)
        header = self.header(loop, entry, guess.steps, guess.opaque)
        try:
            walk = self.walker.execute(loop, header)
        except Rejected:
            walk = Iteration("")
        if walk.state is not None and not self._wrong(header, walk.state, guess.steps, guess.opaque):
            walk.obligations = len(self.algebra.obligations)
            return guess.steps, guess.opaque, walk, header
        del self.algebra.obligations[mark:]
        self.algebra.ranges = ranges
        return None

    def _guessed_and_verified(self, loop: Loop, entry: State) -> Found:
        steps, opaque = self._guess(loop, entry)
        counter = self.walker.counter(loop)
        self.algebra.sample[counter] = 0
        while True:
            header = self.header(loop, entry, steps, opaque)
            mark = len(self.algebra.obligations)
            walk = self.walker.execute(loop, header)
            if walk.state is None and not steps and not opaque:
                return steps, opaque, walk, header
            if walk.state is None:  # left in its first iteration: there the header values are the entry's
                steps, opaque = {}, frozenset()
                del self.algebra.obligations[mark:]
                continue
            wrong = self._wrong(header, walk.state, steps, opaque)
            if not wrong:
                walk.obligations = len(self.algebra.obligations)
                return steps, opaque, walk, header
            del self.algebra.obligations[mark:]
            opaque |= wrong
            steps = {place: s for place, s in steps.items() if place not in wrong}

    def header(self, loop: Loop, entry: State, steps: dict[str, int], opaque: frozenset[str]) -> State:
        """The state at the header in iteration number ``counter``."""
        header = dict(entry)
        for location, step in steps.items():
            value = entry[location]
            assert isinstance(value, Integer)
            header[location] = self.advanced(value, Linear.symbol(self.walker.counter(loop), step))
        return header | {p: Carried(self.walker.name(loop), p, bits_of(p)) for p in opaque}

    def advanced(self, value: Integer, distance: Linear) -> Integer:
        return Integer(self.algebra.widenings.advanced(value.linear, distance), value.width)

    def _wrong(self, header: State, after: State, steps: dict[str, int], opaque: frozenset[str]) -> set[str]:
        """Locations that do not hold at the back edge what was guessed for the next iteration."""
        return {p for p, v in after.items() if (h := header.get(p)) is not v and h != v and p not in opaque
                and not self._advances(header.get(p), v, steps.get(p, 0))}

    def _advances(self, before: Value | None, after: Value, step: int) -> bool:
        if not isinstance(before, Integer) or not isinstance(after, Integer):
            return before == after
        if self.advanced(before, Linear.of(step)) == after:
            return True
        difference = self.algebra.settled(after.linear - before.linear - step)
        if not difference.is_constant and not self.algebra.at_sample(difference):
            if fixable(difference) and not self.algebra.exploring and self.facts.eagerly(self.algebra.address):
                raise AssumeEqual(difference)
            return self.algebra.trial > 0
        return difference.is_constant and difference.constant % (1 << before.width) == 0

    def _guess(self, loop: Loop, entry: State) -> tuple[dict[str, int], frozenset[str]]:
        """Steps of the locations that move by a constant, and those that hold something else each time."""
        self.algebra.trial += 1
        mark, ranges = len(self.algebra.obligations), dict(self.algebra.ranges)
        try:
            unknown, after = self._try(loop, entry)
            widened = [o for o in self.algebra.obligations[mark:] if o.widening
                       and o.address not in self.algebra.widenings.addresses]
        finally:
            self.algebra.trial -= 1
            del self.algebra.obligations[mark:]
            self.algebra.ranges = ranges
        if after is None:
            return {}, frozenset()
        self.facts.turns[loop.header] = exchange_period(unknown, after)
        steps: dict[str, int] = {}
        opaque: set[str] = set()
        steady = {symbol: held.linear for p, before in unknown.items()
                  if isinstance(before, Integer) and isinstance(held := entry.get(p), Integer)
                  and after.get(p, before) == before for symbol in before.linear.symbols}
        needs: list[AssumeEqual] = []
        for location, before in unknown.items():
            value, held = after.get(location, before), entry.get(location)
            try:
                if value in (before, held) or self._same_again(held, value):
                    continue
                step = self._step(before, value, steady)
            except AssumeEqual as need:
                if dead_registers(self.walker.graph, self.walker.lift, loop.header, (location,)):
                    opaque.add(location)  # no matter what it holds there: nothing is asked of its first value
                else:
                    needs.append(need)
                continue
            if step is None or not isinstance(held, Integer):
                opaque.add(location)
            else:
                steps[location] = self._narrow(entry, location, value, step, widened)
        if needs:
            raise AssumeAll(tuple(needs))
        first = {s: held.linear for p, before in unknown.items() if isinstance(before, Integer)
                 and isinstance(held := entry.get(p), Integer) for s in before.linear.symbols}
        for location in sorted(opaque):  # it follows another one, as their entry values show
            value, held = after[location], entry.get(location)
            if isinstance(value, Integer) and isinstance(held, Integer):
                moved = self.algebra.widenings.numbers(value.linear).substitute(first) - held.linear
                if moved.is_constant and moved.constant:
                    steps[location] = moved.constant
        for location in sorted(opaque):
            delayed = self._delayed_step(loop, unknown[location], after.get(location), steps)
            if delayed is not None and isinstance(entry.get(location), Integer) and self.facts.eagerly(loop.header):
                steps[location] = delayed
        return steps, frozenset(opaque - steps.keys())

    def _narrow(self, entry: State, location: str, after: Value, step: int, widened: Sequence[Obligation]) -> int:
        """A register that each iteration writes by a widening that waits: its header value waits as well. Its step.

        A counter that begins at -1 in 32 bits wraps around in its first step, and only there: its widening has to wait,
        and it goes on from below zero. ``widened``: what widenings that do not wait rely on."""
        held, widenings = entry[location], self.algebra.widenings
        if not isinstance(held, Integer) or not isinstance(after, Integer):
            return step
        wide = widenings.whole(after.linear)
        if abs(step) >= WRAPPED:
            waiting = frozenset(o.address for o in widened if o.linear.symbols & (after.linear - step).symbols)
            if waiting:
                raise DeferExtension(waiting)
            if wide is not None and held.linear.is_constant and (small := centred(step, wide.bits)) > 0:
                first = held.linear - (1 << wide.bits)
                if -(1 << wide.bits) <= first.constant < 0:
                    entry[location] = Integer(widenings.unsigned(first, wide.bits), held.width)
                    return small
        if wide is not None and not widenings.whole(held.linear) and (
                wide == widenings.whole(widenings.unsigned(wide.number, wide.bits))):
            entry[location] = Integer(widenings.unsigned(held.linear, wide.bits), held.width)
            for need in (held.linear, -held.linear + ((1 << wide.bits) - 1)):
                self.algebra.require(need, wide.why)
        return step

    def _try(self, loop: Loop, entry: State) -> tuple[State, State | None]:
        """One iteration with everything the loop writes unknown: the unknowns, and the state at the back edge (None
        when the loop is always left first). Slots that turn out to be written are added to ``entry``."""
        written = self._written(loop, entry) - {
            lane for lane, number in self.facts.lanes.items() if entry.get(lane) == constant(number, 64)}
        steady: frozenset[str] = frozenset()
        while True:
            unknown = {p: self._unknown(loop, p, entry.get(p)) for p in sorted(written - steady)}
            try:
                after = self.walker.execute(loop, {**entry, **unknown}, guessing=True).state
            except Rejected:
                if steady:
                    raise
                for location in sorted(written):  # a register that the loop may start from, as a number
                    if isinstance(entry.get(location), Node) and location in GENERAL:
                        entry[location] = self.algebra.integer(entry[location]) or entry[location]
                steady = self._unchanged(loop, entry, written)
                if not steady and unknown == {p: self._unknown(loop, p, entry.get(p)) for p in sorted(written)}:
                    raise
                continue
            if after is None:
                return unknown, None
            for location in after:
                if location.startswith(SLOT) and location not in entry:
                    entry[location] = self.places.live_slot(location)
            more = {p for p, v in after.items() if p.startswith(SLOT) and p not in written and v != entry[p]}
            if not more:
                return unknown, after
            written |= more

    def _written(self, loop: Loop, entry: State) -> set[str]:
        """What the loop writes as far as its code tells; that rsp comes back to what it was is verified."""
        if loop.header not in self.written:
            blocks = [self.walker.lift(b) for b in loop.blocks]
            put = {o.location for b in blocks for o in b.operations if isinstance(o, Put)} - {"rip", "rsp"}
            for returned in (o for b in blocks for o in b.operations if isinstance(o, Forget)):
                put.update(CLOBBERED if returned.in_rax else (*CLOBBERED, "rax"))
            stored = {s for b in blocks for s in stack_stores(b)}
            self.written[loop.header] = frozenset(put), tuple(sorted(stored, key=lambda s: (-slot_range(s)[1], s)))
        places, slots = self.written[loop.header]
        for slot in slots:
            entry.setdefault(slot, self.places.load_slot(entry, slot))
        return {*places, *slots}

    def _delayed_step(self, loop: Loop, before: Value, after: Value | None, steps: dict[str, int]) -> int | None:
        """The step of a register that takes over what another one held an iteration ago, which advances steadily."""
        if not isinstance(before, Integer) or not isinstance(after, Integer):
            return None
        unknown = f"{TRIAL}{loop.header:x}:"
        moved = 0
        for symbol, coefficient in after.linear.terms:
            if symbol.startswith(unknown):
                step = steps.get(symbol.removeprefix(unknown))
                if step is None:
                    return None
                moved += coefficient * step
        return moved if moved and moved == self.algebra.at_sample(after.linear - before.linear) else None

    def _unchanged(self, loop: Loop, entry: State, written: set[str]) -> frozenset[str]:
        """Locations that an iteration writes but, at the captured values, leaves as they were."""
        before, self.algebra.exploring = self.algebra.exploring, True
        try:
            after = self.walker.execute(loop, entry, guessing=True).state or {}
        except Rejected:
            return frozenset()
        finally:
            self.algebra.exploring = before
        return frozenset(p for p in written if self._as_before(entry.get(p), after.get(p)))

    def _as_before(self, old: Value | None, new: Value | None) -> bool:
        if isinstance(old, Integer) and isinstance(new, Integer):
            return self.algebra.at_sample(old.linear) == self.algebra.at_sample(new.linear)
        return isinstance(old, LiveVector) and old == new

    def _same_again(self, entry: Value | None, after: Value) -> bool:
        """A register reloaded with what it held: by another name, so that only the captured values show it."""
        if not isinstance(entry, Integer) or not isinstance(after, Integer):
            return False
        difference = self.algebra.widenings.numbers(after.linear) - entry.linear
        if difference.is_constant or self.algebra.at_sample(difference):
            return False
        if fixable(difference) and not self.algebra.exploring:
            raise AssumeEqual(difference)
        return self.algebra.trial > 0  # inside a trial of an outer loop, where outer registers have no names yet

    def _step(self, before: Value, after: Value, steady: dict[str, Linear]) -> int | None:
        """How far a location moved; ``steady`` gives what unknowns hold that an iteration leaves alone."""
        if not isinstance(before, Integer) or not isinstance(after, Integer):
            return None
        difference = self.algebra.widenings.numbers(after.linear - before.linear).substitute(steady)
        if difference.is_constant:
            return difference.constant
        if fixable(difference):
            return self.algebra.specialised(difference).constant
        if self.algebra.trial and not any(s.startswith(LOOP_COUNTER) for s in difference.symbols):
            return self.algebra.at_sample(difference)  # a guess for the sake of an outer one
        return None

    def _unknown(self, loop: Loop, location: str, entry: Value | None) -> Value:
        if not isinstance(entry, Integer):
            return Carried(self.walker.name(loop), location, bits_of(location))
        symbol = f"{TRIAL}{loop.header:x}:{location}"
        self.algebra.sample[symbol] = self.algebra.at_sample(entry.linear)
        return Integer(Linear.symbol(symbol), entry.width)


def exchange_period(before: Mapping[str, Value], after: Mapping[str, Value]) -> int:
    """After how many iterations each location holds again what it held ``before`` (a number of its own each), where
    iterations exchange some of them; else 1."""
    names = {v.linear: p for p, v in before.items() if isinstance(v, Integer)}
    source = {p: names[v.linear] for p, v in after.items()
              if p in before and isinstance(v, Integer) and v.linear in names}
    found = 1
    for location in source:
        length, at = 1, source[location]
        while at != location and at in source and length <= LONGEST_PERIOD:
            length, at = length + 1, source[at]
        if at == location:
            found = lcm(found, length)
    return found if found <= LONGEST_PERIOD else 1
