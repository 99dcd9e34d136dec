"""Induction variables: the locations that advance by a constant in each iteration, guessed and then verified.

Example: ``k: ...; add rdi, 8; mov rax, rdx; mov rdx, [rdi]; ...; jne k``. The *trial* executes one iteration with an
unknown symbol in every location that the loop writes. rdi goes from ``?rdi`` to ``?rdi + 8``, so its step is guessed
to be 8: at the header of iteration k it holds ``rdi + 8*k``. rax and rdx do not move by a constant and are *opaque*: at
the header they hold ``Carried`` values.

The iteration is then executed from that guess. The state at the back edge must be the guess for k + 1; this is the
induction step of the proof. Locations for which it is not become opaque, and the iteration is executed again, until the
guess holds.

In: the loop and the state at its entry. Out: steps, opaque locations, the verified ``Iteration`` and its header state.

The trial of an outer loop meets an inner loop many times. The last guess for that inner loop is remembered and tried
first, which needs no trial of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from math import lcm

from memopt.cfg.dead_registers import dead_registers
from memopt.ir.frozen import dataclass
from memopt.ir.graph import Loop
from memopt.ir.linear import Linear, product
from memopt.ir.operations import CLOBBERED, Forget, Put
from memopt.ir.reasons import Rejected
from memopt.lifting.execution.assumptions import GENERAL, SLOT, Assumptions, State, Step, bits_of, slot_range
from memopt.lifting.execution.iteration import IterationExecutor
from memopt.lifting.execution.iteration_result import Iteration
from memopt.lifting.execution.memory import MemoryModel, stack_stores
from memopt.lifting.values.algebra import LOOP_COUNTER, TRIAL, Algebra, Obligation, fixable
from memopt.lifting.values.requests import AssumeAll, AssumeEqual, DeferExtension
from memopt.lifting.values.values import Carried, Integer, LiveVector, Node, Value, centred, constant

WRAPPED = 1 << 31  # a 32-bit number that wraps around seems to move by this much at least
LONGEST_PERIOD = 4

Found = tuple[dict[str, Step], frozenset[str], Iteration, State]  # steps, opaque locations, iteration, header state


@dataclass(frozen=True, slots=True)
class Guess:
    """The result for a loop that was analysed before: ``slots`` are the stack slots that turned out to be written."""

    steps: dict[str, Step]
    opaque: frozenset[str]
    slots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Induction:
    """Finds the induction variables of loops.

    ``guesses``: what trials of inner loops found inside trials of outer ones, by the loop's name and the locations that
    hold integers at its entry. ``written``: the locations and stack slots that the blocks of a loop write, by header.
    """

    assumptions: Assumptions
    algebra: Algebra
    memory: MemoryModel
    walker: IterationExecutor
    guesses: dict[tuple[str, frozenset[str]], Guess] = field(default_factory=dict)
    written: dict[int, tuple[frozenset[str], tuple[str, ...]]] = field(default_factory=dict)

    def of(self, loop: Loop, entry: State) -> Found:
        """Guess the steps by a trial and verify them, making locations opaque until the guess holds.

        ``entry``: the state in front of the loop; slots that the loop writes are added to it.
        """
        if not self.algebra.trial or self.algebra.exploring:
            return self._guessed_and_verified(loop, entry)
        numbers = frozenset(p for p in self._written(loop, entry) if isinstance(entry.get(p), Integer))
        known = self.guesses.get((self.walker.name(loop), numbers))
        found = None if known is None else self._reuse_guess(loop, entry, known)
        if found is None:
            before = dict(entry)
            found = self._guessed_and_verified(loop, entry)
            if found[2].state is not None and all(entry[p] is v for p, v in before.items()):
                slots = tuple(p for p in entry if p not in before)
                self.guesses[self.walker.name(loop), numbers] = Guess(found[0], found[1], slots)
        return found

    def _reuse_guess(self, loop: Loop, entry: State, guess: Guess) -> Found | None:
        """Verify an earlier ``guess`` in place of a trial; None if it does not hold as it is."""
        for slot in guess.slots:
            entry[slot] = entry.get(slot) or self.memory.live_slot(slot)
        if not all(isinstance(entry.get(p), Integer) for p in guess.steps) or guess.opaque - entry.keys():
            return None
        self.algebra.sample[self.walker.counter(loop)] = 0
        mark, ranges = len(self.algebra.obligations), dict(self.algebra.ranges)
        header = self.header(loop, entry, guess.steps, guess.opaque)
        try:
            walk = self.walker.execute(loop, header)
        except Rejected:
            walk = Iteration("")
        if walk.state is not None and not self._refuted(header, walk.state, guess.steps, guess.opaque):
            walk.obligations = len(self.algebra.obligations)
            return guess.steps, guess.opaque, walk, header
        del self.algebra.obligations[mark:]
        self.algebra.ranges = ranges
        return None

    def _guessed_and_verified(self, loop: Loop, entry: State) -> Found:
        """Guess, then execute and make refuted locations opaque, until no location is refuted."""
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
            wrong = self._refuted(header, walk.state, steps, opaque)
            if not wrong:
                walk.obligations = len(self.algebra.obligations)
                return steps, opaque, walk, header
            del self.algebra.obligations[mark:]
            opaque |= wrong
            steps = {place: s for place, s in steps.items() if place not in wrong}

    def header(self, loop: Loop, entry: State, steps: dict[str, Step], opaque: frozenset[str]) -> State:
        """The state at the header in iteration ``counter``: entry + step * counter, or ``Carried`` if opaque."""
        header = dict(entry)
        for location, step in steps.items():
            value = entry[location]
            assert isinstance(value, Integer)
            header[location] = self.advanced(value, times(Linear.symbol(self.walker.counter(loop)), step))
        return header | {p: Carried(self.walker.name(loop), p, bits_of(p)) for p in opaque}

    def advanced(self, value: Integer, distance: Linear) -> Integer:
        """``value + distance``; a deferred extension stays one of as many bits."""
        return Integer(self.algebra.widenings.advanced(value.linear, distance), value.width)

    def _refuted(self, header: State, after: State, steps: dict[str, Step], opaque: frozenset[str]) -> set[str]:
        """The locations that do not hold at the back edge what the guess says for the next header."""
        return {p for p, v in after.items() if (h := header.get(p)) is not v and h != v and p not in opaque
                and not self._advances(header.get(p), v, steps.get(p, 0))}

    def _advances(self, before: Value | None, after: Value, step: Step) -> bool:
        """Whether ``after`` is ``before + step``, modulo the width. An eager attempt may raise AssumeEqual for it."""
        if not isinstance(before, Integer) or not isinstance(after, Integer):
            return before == after
        if self.advanced(before, times(Linear.of(1), step)) == after:
            return True
        difference = self.algebra.settled(after.linear - before.linear - step)
        if not difference.is_constant and not self.algebra.at_sample(difference):
            if fixable(difference) and not self.algebra.exploring and self.assumptions.eagerly(self.algebra.address):
                raise AssumeEqual(difference)
            return self.algebra.trial > 0
        return difference.is_constant and difference.constant % (1 << before.width) == 0

    def _guess(self, loop: Loop, entry: State) -> tuple[dict[str, Step], frozenset[str]]:
        """The steps of locations that move by a constant in the trial, and the opaque locations.

        Raises AssumeAll if a location moves by a live-in value whose number has to be requested.
        """
        self.algebra.trial += 1
        mark, ranges = len(self.algebra.obligations), dict(self.algebra.ranges)
        try:
            unknown, after = self._trial_iteration(loop, entry)
            widened = [o for o in self.algebra.obligations[mark:] if o.widening
                       and o.address not in self.algebra.widenings.addresses]
        finally:
            self.algebra.trial -= 1
            del self.algebra.obligations[mark:]
            self.algebra.ranges = ranges
        if after is None:
            return {}, frozenset()
        self.assumptions.hints.exchange_periods[loop.header] = exchange_period(unknown, after)
        steps: dict[str, Step] = {}
        opaque: set[str] = set()
        steady = {symbol: initial.linear for p, before in unknown.items()
                  if isinstance(before, Integer) and isinstance(initial := entry.get(p), Integer)
                  and after.get(p, before) == before for symbol in before.linear.symbols}
        needs: list[AssumeEqual] = []
        for location, before in unknown.items():
            value, initial = after.get(location, before), entry.get(location)
            try:
                if value in (before, initial) or self._same_again(initial, value):
                    continue
                step = self._step(before, value, steady)
            except AssumeEqual as need:
                if dead_registers(self.walker.graph, self.walker.lift, loop.header, (location,)):
                    opaque.add(location)  # dead at the header: its entry value does not matter
                else:
                    needs.append(need)
                continue
            if step is None or not isinstance(initial, Integer):
                opaque.add(location)
            elif isinstance(step, Linear):
                steps[location] = step
            else:
                steps[location] = self._defer_header_value(entry, location, value, step, widened)
        if needs:
            raise AssumeAll(tuple(needs))
        first = {s: initial.linear for p, before in unknown.items() if isinstance(before, Integer)
                 and isinstance(initial := entry.get(p), Integer) for s in before.linear.symbols}
        for location in sorted(opaque):  # it takes over another location's value: the entry values give the step
            value, initial = after[location], entry.get(location)
            if isinstance(value, Integer) and isinstance(initial, Integer):
                moved = self.algebra.widenings.numbers(value.linear).substitute(first) - initial.linear
                if moved.is_constant and moved.constant:
                    steps[location] = moved.constant
        for location in sorted(opaque):
            delayed = self._delayed_step(loop, unknown[location], after.get(location), steps)
            numeric = isinstance(entry.get(location), Integer)
            if delayed is not None and numeric and self.assumptions.eagerly(loop.header):
                steps[location] = delayed
        return steps, frozenset(opaque - steps.keys())

    def _defer_header_value(self, entry: State, location: str, after: Value, step: int,
                            widened: Sequence[Obligation]) -> int:
        """The step of ``location``; its entry value becomes a deferred extension if each iteration writes it by one.

        Example: ``mov r9d, -1; d: ...; add r9d, 1; cmp r9d, 2; jne d`` holds 0xffffffff, 0, 1. It wraps around in its
        first step only, so that its ``step`` seems to be -0xffffffff. As the deferred 32-bit extension of -1, 0, 1 its
        step is 1 (memopt.lifting.values.extensions).

        ``widened``: the obligations of extensions that are not deferred yet. Raises DeferExtension for those that have
        to be.
        """
        initial, widenings = entry[location], self.algebra.widenings
        if not isinstance(initial, Integer) or not isinstance(after, Integer):
            return step
        wide = widenings.whole(after.linear)
        if abs(step) >= WRAPPED:
            waiting = frozenset(o.address for o in widened if o.linear.symbols & (after.linear - step).symbols)
            if waiting:
                raise DeferExtension(waiting)
            if wide is not None and initial.linear.is_constant and (small := centred(step, wide.bits)) > 0:
                first = initial.linear - (1 << wide.bits)
                if -(1 << wide.bits) <= first.constant < 0:
                    entry[location] = Integer(widenings.unsigned(first, wide.bits), initial.width)
                    return small
        if wide is not None and not widenings.whole(initial.linear) and (
                wide == widenings.whole(widenings.unsigned(wide.number, wide.bits))):
            entry[location] = Integer(widenings.unsigned(initial.linear, wide.bits), initial.width)
            for need in (initial.linear, -initial.linear + ((1 << wide.bits) - 1)):
                self.algebra.require(need, wide.why)
        return step

    def _trial_iteration(self, loop: Loop, entry: State) -> tuple[State, State | None]:
        """Execute one iteration with an unknown symbol in every location that the loop writes.

        Returns the unknowns and the state at the back edge, None if the loop is always left before it. Slots that turn
        out to be written are added to ``entry``. If the iteration is Rejected, it is executed once more, with the
        entry values in locations that do not change at the captured values.
        """
        written = self._written(loop, entry) - {
            lane for lane, number in self.assumptions.lanes.items() if entry.get(lane) == constant(number, 64)}
        steady: frozenset[str] = frozenset()
        while True:
            unknown = {p: self._unknown(loop, p, entry.get(p)) for p in sorted(written - steady)}
            try:
                after = self.walker.execute(loop, {**entry, **unknown}, guessing=True).state
            except Rejected:
                if steady:
                    raise
                for location in sorted(written):  # a register may start as a number that a request makes known
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
                    entry[location] = self.memory.live_slot(location)
            more = {p for p, v in after.items() if p.startswith(SLOT) and p not in written and v != entry[p]}
            if not more:
                return unknown, after
            written |= more

    def _written(self, loop: Loop, entry: State) -> set[str]:
        """The locations that the code of the loop writes, except rsp, which the verification checks.

        Slots are added to ``entry``.
        """
        if loop.header not in self.written:
            blocks = [self.walker.lift(b) for b in loop.blocks]
            put = {o.location for b in blocks for o in b.operations if isinstance(o, Put)} - {"rip", "rsp"}
            for returned in (o for b in blocks for o in b.operations if isinstance(o, Forget)):
                put.update(CLOBBERED if returned.in_rax else (*CLOBBERED, "rax"))
            stored = {s for b in blocks for s in stack_stores(b)}
            self.written[loop.header] = frozenset(put), tuple(sorted(stored, key=lambda s: (-slot_range(s)[1], s)))
        places, slots = self.written[loop.header]
        for slot in slots:
            entry.setdefault(slot, self.memory.load_slot(entry, slot))
        return {*places, *slots}

    def _delayed_step(self, loop: Loop, before: Value, after: Value | None, steps: dict[str, Step]) -> int | None:
        """The step of a register that takes over an induction variable of the iteration before; None for others.

        Example: ``mov rax, rcx; inc rcx``: rax is rcx - 1 from the second iteration on.
        """
        if not isinstance(before, Integer) or not isinstance(after, Integer):
            return None
        unknown = f"{TRIAL}{loop.header:x}:"
        moved = 0
        for symbol, coefficient in after.linear.terms:
            if symbol.startswith(unknown):
                step = steps.get(symbol.removeprefix(unknown))
                if not isinstance(step, int):
                    return None
                moved += coefficient * step
        return moved if moved and moved == self.algebra.at_sample(after.linear - before.linear) else None

    def _unchanged(self, loop: Loop, entry: State, written: set[str]) -> frozenset[str]:
        """The locations that an iteration writes but leaves unchanged at the captured values."""
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
        """Whether a register is reloaded with its entry value under another symbol, which only captured values show.

        Raises AssumeEqual to have it so.
        """
        if not isinstance(entry, Integer) or not isinstance(after, Integer):
            return False
        difference = self.algebra.widenings.numbers(after.linear) - entry.linear
        if difference.is_constant or self.algebra.at_sample(difference):
            return False
        if fixable(difference) and not self.algebra.exploring:
            raise AssumeEqual(difference)
        return self.algebra.trial > 0  # in the trial of an outer loop, registers are unknowns: believe the samples

    def _step(self, before: Value, after: Value, steady: dict[str, Linear]) -> Step | None:
        """How far a location moves in the trial; None if neither by a constant nor by a stride.

        ``steady``: the entry values of unknowns that the iteration does not change. Raises AssumeEqual if the distance
        is a live-in value.
        """
        if not isinstance(before, Integer) or not isinstance(after, Integer):
            return None
        difference = self.algebra.widenings.numbers(after.linear - before.linear).substitute(steady)
        if difference.is_constant:
            return difference.constant
        if self.algebra.is_stride(difference):
            return difference
        if fixable(difference):
            return self.algebra.specialised(difference).constant
        if self.algebra.trial and not any(s.startswith(LOOP_COUNTER) for s in difference.symbols):
            return self.algebra.at_sample(difference)  # good enough in the trial of an outer loop
        return None

    def _unknown(self, loop: Loop, location: str, entry: Value | None) -> Value:
        """The value of ``location`` at the header in a trial: a fresh symbol if it holds an integer at entry."""
        if not isinstance(entry, Integer):
            return Carried(self.walker.name(loop), location, bits_of(location))
        symbol = f"{TRIAL}{loop.header:x}:{location}"
        self.algebra.sample[symbol] = self.algebra.at_sample(entry.linear)
        return Integer(Linear.symbol(symbol), entry.width)


def times(count: Linear, step: Step) -> Linear:
    """How far a location advances in ``count`` iterations."""
    return product(count, step) if isinstance(step, Linear) else count * step


def exchange_period(before: Mapping[str, Value], after: Mapping[str, Value]) -> int:
    """The number of iterations after which locations that an iteration permutes hold their own values again; else 1.

    Example: ``tmp = p; p = q; q = tmp;`` at the end of an iteration has the period 2. ``before``: the unknowns of the
    trial, ``after``: the state at the back edge. Periods above LONGEST_PERIOD count as 1.
    """
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
