"""Lift a loop nest by symbolic execution of one iteration per loop: guess, then verify.

A loop is run once with every location it writes unknown (the trial); a location that moved by a constant is guessed
to be ``entry + step * counter``. The loop is run again from that guess, which must reproduce itself at the back edge
(the proof by induction); what does not is demoted to an opaque carried value. Exits are solved for the trip count.
Branches inside an iteration follow the captured values; what they rely on becomes an obligation for all iterations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from memopt.analysis.algebra import LOOP_COUNTER, TRIAL, Algebra, Obligation, Promote, Specialise, fixable
from memopt.analysis.nest import CarriedValue, Item, LoadEvent, LoopNode, StoreEvent
from memopt.analysis.values import (
    Atom,
    Carried,
    Either,
    Final,
    Formula,
    Integer,
    LiveVector,
    Loaded,
    Node,
    Not,
    Opaque,
    Truth,
    Value,
    centred,
    constant,
    constant_of,
    negate,
    substitute,
)
from memopt.ir.graph import FlowGraph, Loop, LoopForest
from memopt.ir.linear import Linear
from memopt.ir.operations import (
    AlignmentCheck,
    Block,
    Compute,
    Exit,
    Get,
    Jump,
    Literal,
    Load,
    Operand,
    Put,
    Store,
    Temp,
)
from memopt.ir.reasons import Reason, Rejected
from memopt.x86.conditions import CARRY, expand_condition

GENERAL = ("rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", *(f"r{n}" for n in range(8, 16)))
LANES = tuple(f"xmm{n}.{lane}" for n in range(16) for lane in range(4))
SLOT = "slot:"  # prefix of a location on the stack: "slot:<displacement from rsp>:<bits>"
STEP_LIMIT = 4096  # blocks along one iteration

State = dict[str, Value]


@dataclass
class Facts:
    """What the lift knows about the captured program: it grows from attempt to attempt.

    ``registers``: captured values, signed; ``vectors``: 32 bytes of each vector register ("xmm3"). ``equations``:
    (linear over live-in symbols, its value) to be guarded, each solved for one symbol in ``solved``. ``cells``:
    live-in memory cells, symbol -> (address, bits). ``eager``: also specialise on how registers relate that only
    follow one another; such a guard seldom holds at first entry.
    """

    registers: Mapping[str, int]
    peek: Callable[[int, int], int]
    vectors: Mapping[str, bytes] = field(default_factory=dict)
    equations: list[tuple[Linear, int]] = field(default_factory=list)
    solved: dict[str, Linear] = field(default_factory=dict)
    cells: dict[str, tuple[Linear, int]] = field(default_factory=dict)
    eager: bool = False

    def samples(self) -> dict[str, int]:
        values = dict(self.registers)
        for symbol, (address, width) in self.cells.items():
            values[symbol] = self.peek(address.evaluate(values), width)
        return values

    def add_equation(self, linear: Linear) -> None:
        factor = math.gcd(*(c for _, c in linear.terms))
        value = (linear.evaluate(self.samples()) - linear.constant) // factor
        linear = Linear(tuple((s, c // factor) for s, c in linear.terms))
        unit = [s for s, c in linear.terms if abs(c) == 1]
        if not unit:
            for symbol in sorted(linear.symbols):
                self.add_equation(Linear.symbol(symbol))
            return
        symbol = unit[-1]
        coefficient = linear.coefficient(symbol)
        solution = (linear.without(symbol) - value) * -coefficient
        self.equations.append((linear, value))
        self.solved = {s: e.substitute({symbol: solution}) for s, e in self.solved.items()} | {symbol: solution}

    def add_cell(self, address: Linear, width: int) -> str:
        symbol = f"m[{address}]:{width}"
        self.cells.setdefault(symbol, (address, width))
        return symbol

    def symbol(self, name: str) -> Linear:
        return self.solved.get(name, Linear.symbol(name))


@dataclass(frozen=True, slots=True)
class OuterLoop:
    """The patched loop, lifted: header values are ``entry`` at the current iteration and ``steps`` per iteration.

    ``numerator / divisor`` is R, how often the header is reached from now on (memopt.ir.region.Trips).
    ``exit_state`` holds every location when the loop is left; ``leaves_first``: something of an iteration
    comes after the exit test (a while loop), so that R counts only whole iterations.
    """

    node: LoopNode
    steps: dict[str, int]
    opaque: frozenset[str]
    numerator: Linear
    divisor: int
    exit_state: State
    obligations: tuple[Obligation, ...]
    exit_width: int  # bits of the exit comparison
    ranges: dict[str, Linear]  # counter -> its largest value
    slots: frozenset[str]
    leaves_first: bool


@dataclass
class _Walk:
    """One iteration: what happened, and how it left the loop."""

    items: list[Item] = field(default_factory=list)
    state: State | None = None  # at the back edge
    exits: list[tuple[Formula, State, int, int]] = field(default_factory=list)  # leaving, state, items, target
    ended: bool = False  # the iteration always leaves
    guessing: bool = False  # header values are unknown: stay in the loop whatever the test says


class Executor:
    """One attempt at lifting, under fixed ``facts``. Raises Specialise or Promote to ask for another attempt."""

    def __init__(self, graph: FlowGraph, forest: LoopForest, lift: Callable[[int], Block], facts: Facts) -> None:
        self.graph, self.forest, self.lift, self.facts = graph, forest, lift, facts
        self.loads: list[LoadEvent] = []
        self.algebra = Algebra(facts.samples(), lambda event: self.loads[event].pointer, _condition)
        self.ranges: dict[str, Linear] = {}
        self.trial = 0
        widest = sorted(facts.cells.items(), key=lambda c: c[1][1])
        self.cells = {address: symbol for symbol, (address, _) in widest}
        self.slots: set[str] = set()

    # -- the outermost loop -------------------------------------------------------------------------------------

    def outermost(self, loop: Loop) -> OuterLoop:
        entry: State = {r: Integer(self.facts.symbol(r), 64) for r in GENERAL}
        entry |= {lane: LiveVector(lane) for lane in LANES} | {"d_flag": constant(1, 64)}
        entry |= {flag: Carried("entry", flag) for flag in ("cc_op", "cc_dep1", "cc_dep2", "cc_ndep", "mxcsr_round")}
        steps, opaque, walk, header = self._induction(loop, entry)
        counter = self._counter(loop)
        exits = [e for e in walk.exits if e[0] is not False]
        if len(exits) != 1 or walk.ended or walk.state is None:
            raise Rejected(Reason.TRIP_COUNT, f"{len(exits)} exits of the loop at {loop.header:#x}")
        leaving, exit_state, count, _ = exits[0]
        first, slope = self._crossing(leaving, counter)
        leaves_first = not self._ends_with_exit(walk, count, exit_state, opaque)
        numerator = -first if slope > 0 else first
        if not leaves_first:
            numerator = numerator + abs(slope)
        self.ranges[counter] = Linear.symbol("R") - 1
        node = self._node(loop, walk, Linear.symbol("R"), entry, header, exit_state)
        return OuterLoop(node, steps, opaque, numerator, abs(slope), exit_state,
                         tuple(self.algebra.obligations), _width(leaving), dict(self.ranges),
                         frozenset(self.slots), leaves_first)

    # -- any loop -----------------------------------------------------------------------------------------------

    @staticmethod
    def _counter(loop: Loop) -> str:
        return f"{LOOP_COUNTER}{loop.header:x}"

    def _induction(self, loop: Loop, entry: State) -> tuple[dict[str, int], frozenset[str], _Walk, State]:
        """Guess steps by a trial, verify them, demote until they hold; the last walk is the verified one."""
        steps, opaque = self._guess(loop, entry)
        counter = self._counter(loop)
        self.algebra.sample[counter] = 0
        while True:
            header = self._header(loop, entry, steps, opaque)
            mark = len(self.algebra.obligations)
            walk = self._walk(loop, header)
            if walk.state is None and not steps and not opaque:
                return steps, opaque, walk, header
            if walk.state is None:  # left in its first iteration: there the header values are the entry's
                steps, opaque = {}, frozenset()
                del self.algebra.obligations[mark:]
                continue
            wrong = {p for p in self._changed(header, walk.state)
                     if p not in opaque and not self._advances(header.get(p), walk.state[p], steps.get(p, 0))}
            if not wrong:
                return steps, opaque, walk, header
            del self.algebra.obligations[mark:]
            opaque |= wrong
            steps = {place: s for place, s in steps.items() if place not in wrong}

    def _header(self, loop: Loop, entry: State, steps: dict[str, int], opaque: frozenset[str]) -> State:
        """The state at the header in iteration number ``counter``."""
        header = dict(entry)
        for location, step in steps.items():
            value = entry[location]
            assert isinstance(value, Integer)
            header[location] = Integer(value.linear + Linear.symbol(self._counter(loop), step), value.width)
        return header | {p: Carried(_name(loop), p, _bits(p)) for p in opaque}

    @staticmethod
    def _changed(header: State, after: State) -> list[str]:
        return [place for place, v in after.items() if header.get(place) != v]

    def _advances(self, before: Value | None, after: Value, step: int) -> bool:
        if not isinstance(before, Integer) or not isinstance(after, Integer):
            return before == after
        difference = after.linear - before.linear - step
        if not difference.is_constant and not self.algebra.at_sample(difference):
            if fixable(difference) and self.facts.eager and not self.algebra.exploring:
                raise Specialise(difference)
            return self.trial > 0
        return difference.is_constant and difference.constant % (1 << before.width) == 0

    def _guess(self, loop: Loop, entry: State) -> tuple[dict[str, int], frozenset[str]]:
        """Steps of the locations that move by a constant, and those that hold something else each time."""
        self.trial += 1
        mark, ranges = len(self.algebra.obligations), dict(self.ranges)
        try:
            unknown, after = self._try(loop, entry)
        finally:
            self.trial -= 1
            del self.algebra.obligations[mark:]
            self.ranges = ranges
        if after is None:
            return {}, frozenset()
        steps: dict[str, int] = {}
        opaque: set[str] = set()
        for location, before in unknown.items():
            value, held = after.get(location, before), entry.get(location)
            if value in (before, held) or self._same_again(held, value):
                continue
            step = self._step(before, value)
            if step is None or not isinstance(held, Integer):
                opaque.add(location)
            else:
                steps[location] = step
        if self.facts.eager:
            for location in sorted(opaque):
                delayed = self._delayed_step(loop, unknown[location], after.get(location), steps)
                if delayed is not None and isinstance(entry.get(location), Integer):
                    steps[location] = delayed
        return steps, frozenset(opaque - steps.keys())

    def _try(self, loop: Loop, entry: State) -> tuple[State, State | None]:
        """One iteration with everything the loop writes unknown: the unknowns, and the state at the back edge (None
        when the loop is always left first). Slots that turn out to be written are added to ``entry``."""
        written = self._written(loop, entry)
        steady: frozenset[str] = frozenset()
        while True:
            unknown = {p: self._unknown(loop, p, entry.get(p)) for p in sorted(written - steady)}
            try:
                after = self._walk(loop, {**entry, **unknown}, guessing=True).state
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
                    entry[location] = self._live_slot(location)
            more = {p for p, v in after.items() if p.startswith(SLOT) and p not in written and v != entry[p]}
            if not more:
                return unknown, after
            written |= more

    def _written(self, loop: Loop, entry: State) -> set[str]:
        written = {o.location for b in loop.blocks for o in self.lift(b).operations if isinstance(o, Put)} - {"rip"}
        for slot in {s for b in loop.blocks for s in _stack_stores(self.lift(b))}:
            entry.setdefault(slot, self._load_slot(entry, slot))
            written.add(slot)
        return written

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
            after = self._walk(loop, entry, guessing=True).state or {}
        except Rejected:
            return frozenset()
        finally:
            self.algebra.exploring = before
        pairs = ((p, entry.get(p), after.get(p)) for p in written)
        return frozenset(p for p, old, new in pairs if isinstance(old, Integer) and isinstance(new, Integer)
                         and self.algebra.at_sample(old.linear) == self.algebra.at_sample(new.linear))

    def _same_again(self, entry: Value | None, after: Value) -> bool:
        """A register reloaded with what it held: by another name, so that only the captured values show it."""
        if not isinstance(entry, Integer) or not isinstance(after, Integer):
            return False
        difference = after.linear - entry.linear
        if difference.is_constant or self.algebra.at_sample(difference):
            return False
        if fixable(difference) and not self.algebra.exploring:
            raise Specialise(difference)
        return self.trial > 0  # inside a trial of an outer loop, where outer registers have no names yet

    def _step(self, before: Value, after: Value) -> int | None:
        if not isinstance(before, Integer) or not isinstance(after, Integer):
            return None
        difference = after.linear - before.linear
        if difference.is_constant:
            return difference.constant
        if fixable(difference):
            return self.algebra.specialised(difference).constant
        return None

    def _unknown(self, loop: Loop, location: str, entry: Value | None) -> Value:
        if not isinstance(entry, Integer):
            return Carried(_name(loop), location, _bits(location))
        symbol = f"{TRIAL}{loop.header:x}:{location}"
        self.algebra.sample[symbol] = self.algebra.at_sample(entry.linear)
        return Integer(Linear.symbol(symbol), entry.width)

    def _inner(self, loop: Loop, entry: State) -> tuple[State, list[Item], int]:
        """Summarise a loop met inside an iteration: the state after it, what it did, where control goes."""
        steps, opaque, walk, header = self._induction(loop, entry)
        counter = self._counter(loop)
        turning = [(e, self._turns(e[0], counter)) for e in walk.exits if e[0] is not False]
        if len(turning) != 1:
            raise Rejected(Reason.TRIP_COUNT, f"{len(turning)} exits of the loop at {loop.header:#x}")
        (_, exit_state, count, target), turns = turning[0]
        if turns is not None:
            self.ranges[counter] = turns
        if turns is not None and walk.state is not None and not self._ends_with_exit(walk, count, exit_state, opaque):
            return self._left_in_the_middle(loop, walk, entry, steps, opaque, turns)
        trips = None if turns is None else turns + 1
        node = self._node(loop, walk, trips, entry, header, exit_state)
        return self._after(loop, walk.exits, exit_state, entry, turns), [node], target

    @staticmethod
    def _ends_with_exit(walk: _Walk, count: int, exit_state: State, opaque: frozenset[str]) -> bool:
        """A do-while loop: nothing that matters comes after the exit test."""
        acts = any(isinstance(i, StoreEvent | LoopNode) for i in walk.items[count:])
        return not acts and walk.state is not None and all(exit_state[p] == walk.state[p] for p in opaque)

    def _left_in_the_middle(self, loop: Loop, walk: _Walk, entry: State, steps: dict[str, int],
                            opaque: frozenset[str], turns: Linear) -> tuple[State, list[Item], int]:
        """``turns`` whole iterations, then the part of one up to the exit, walked once more from where they end."""
        assert walk.state is not None
        state = dict(entry)
        items: list[Item] = []
        if turns != Linear.of(0):
            for location, step in steps.items():
                before = entry[location]
                assert isinstance(before, Integer)
                state[location] = Integer(before.linear + turns * step, before.width)
            state |= {p: Final(_name(loop), p, _bits(p)) for p in opaque}
            finals = {**walk.state, **{p: v for p, v in entry.items() if p not in opaque}}
            items.append(self._node(loop, walk, turns, entry, self._header(loop, entry, {}, opaque), finals))
        last = self._walk(loop, state)
        if not last.ended or len(last.exits) != 1 or last.exits[0][0] is not True:
            raise Rejected(Reason.TRIP_COUNT, f"the last iteration of the loop at {loop.header:#x} is not its last")
        _, after, _, target = last.exits[0]
        return after, items + last.items, target

    def _node(self, loop: Loop, walk: _Walk, trips: Linear | None, entry: State, header: State,
              exit_state: State) -> LoopNode:
        after = walk.state or {}
        carried = tuple(CarriedValue(p, entry[p], after[p]) for p, v in sorted(header.items())
                        if isinstance(v, Carried) and v.loop == _name(loop) and p in entry and p in after)
        finals = tuple((p, exit_state[p]) for p in sorted(exit_state) if exit_state[p] != entry.get(p))
        return LoopNode(self._counter(loop), trips, tuple(walk.items), carried, finals, loop.header)

    def _after(self, loop: Loop, exits: list[tuple[Formula, State, int, int]], exit_state: State, entry: State,
               turns: Linear | None) -> State:
        counter = self._counter(loop)
        way = None if turns is not None else self._way(exits, counter)
        after: State = {}
        for location, value in exit_state.items():
            varies = not isinstance(value, Integer) or counter in value.linear.symbols
            if value == entry.get(location) or not varies:
                after[location] = value
            elif isinstance(value, Integer) and turns is not None:
                after[location] = substitute(value, {counter: turns})
            elif isinstance(value, Integer) and way and value.linear.coefficient(counter) % way[1] == 0:
                times = value.linear.coefficient(counter) // way[1]
                after[location] = Integer(value.linear.without(counter) + way[0] * times, value.width)
            else:
                after[location] = Final(_name(loop), location, value.width)
        return after

    def _way(self, exits: list[tuple[Formula, State, int, int]], counter: str) -> tuple[Linear, int] | None:
        """``(total, step)``: the loop ends when step * counter is total, even where the turns themselves are unknown.

        So a register that runs up to a bound is known to be the bound.
        """
        leaving = next(e[0] for e in exits if e[0] is not False)
        if not _is_equality(leaving):
            return None
        try:
            first, slope = self._crossing(leaving, counter)
        except Rejected:
            return None
        return -first, slope

    # -- exits --------------------------------------------------------------------------------------------------

    def _turns(self, leaving: Formula, counter: str) -> Linear | None:
        """How often the back edge is taken: the first counter value for which ``leaving`` holds."""
        if leaving is True:
            return Linear.of(0)
        try:
            first, slope = self._crossing(leaving, counter)
        except Rejected:
            if self.trial:
                return None
            raise
        if not first.is_constant:
            if fixable(first) or self.algebra.exploring:
                first = self.algebra.specialised(first)
            elif self.trial:
                return None
        if not first.is_constant:
            raise Rejected(Reason.TRIP_COUNT, f"the bound {first} changes with an outer loop")
        if slope > 0:
            first, slope = -first, -slope
        distance = first.constant
        if _is_equality(leaving):
            if distance < 0 or distance % -slope:
                raise Rejected(Reason.TRIP_COUNT, "the loop steps over its bound")
            return Linear.of(distance // -slope)
        return Linear.of(max(0, -(-distance // -slope)))

    def _crossing(self, leaving: Formula, counter: str) -> tuple[Linear, int]:
        """``first`` and ``slope`` such that the loop is left as soon as first + slope * counter reaches 0
        (== 0, >= 0 with slope > 0, <= 0 with slope < 0)."""
        inverted = isinstance(leaving, Not)
        atom = leaving.operand if isinstance(leaving, Not) else leaving
        if isinstance(atom, Opaque):
            raise Rejected(Reason.DATA_DEPENDENT_BRANCH, "the loop is left on loaded data")
        if not isinstance(atom, Atom):
            raise Rejected(Reason.TRIP_COUNT, "the exit condition is not a comparison")
        for need in atom.needs:
            self.algebra.require(need, "an exit comparison does not wrap around")
        slope = atom.linear.coefficient(counter)
        first = atom.linear.without(counter)
        if inverted and not atom.equal:  # left when linear < 0, that is -linear - 1 >= 0
            first, slope, inverted = -first - 1, -slope, False
        if inverted or slope == 0 or (not atom.equal and slope < 0):
            raise Rejected(Reason.TRIP_COUNT, f"the exit test {atom.linear} does not approach its bound")
        return first, slope

    # -- one iteration ------------------------------------------------------------------------------------------

    def _walk(self, loop: Loop, state: State, guessing: bool = False) -> _Walk:
        walk, state, address = _Walk(guessing=guessing), dict(state), loop.header
        counter = self._counter(loop)
        children = {self.forest.loops[n].header: self.forest.loops[n] for n in loop.children}
        for _ in range(STEP_LIMIT):
            if address in children:
                state, items, address = self._inner(children[address], state)
                walk.items += items
            else:
                following = self._block(address, loop, state, walk, counter)
                if following is None:
                    walk.ended = True
                    return walk
                address = following
            if address == loop.header:
                walk.state = state
                return walk
            if address not in loop.blocks:
                walk.exits.append((True, state, len(walk.items), address))
                walk.ended = True
                return walk
        raise Rejected(Reason.NOT_A_NEST, f"no back edge found in the loop at {loop.header:#x}")

    def _block(self, address: int, loop: Loop, state: State, walk: _Walk, counter: str) -> int | None:
        """Run one basic block; the address of the next one, or None when the loop is always left here."""
        block = self.lift(address)
        temps: dict[int, Value] = {}
        last = block.operations[-1]
        for operation in block.operations:
            self.algebra.address = operation.address
            match operation:
                case Get():
                    temps[operation.result] = self._get(state, operation.location)
                case Put():
                    if operation.location != "rip":
                        state[operation.location] = self._operand(temps, operation.value)
                case Compute():
                    operands = tuple(self._operand(temps, o) for o in operation.operands)
                    temps[operation.result] = self.algebra.compute(operation.operator, operands, operation.width)
                case Load():
                    pointer = self._pointer(self._operand(temps, operation.pointer))
                    temps[operation.result] = self._load(state, walk, pointer, operation.width)
                case Store():
                    pointer = self._pointer(self._operand(temps, operation.pointer))
                    self._store(state, walk, pointer, self._operand(temps, operation.value), operation.width)
                case Exit():
                    condition = self.algebra.truth(self._operand(temps, operation.condition))
                    target = self._exit(operation, last, condition, loop, state, walk, counter)
                    if target is not None:
                        return target if target in loop.blocks else None
                case Jump():
                    return self._jump(operation)
                case AlignmentCheck():
                    pass  # a misaligned access faults in the original as well
        raise Rejected(Reason.INDIRECT_JUMP, f"{address:#x}")

    @staticmethod
    def _jump(jump: Jump) -> int:
        if jump.kind == "call":
            raise Rejected(Reason.CALL, f"at {jump.address:#x}")
        if jump.kind not in ("boring", "fallthrough") or not isinstance(jump.target, int):
            raise Rejected(Reason.INDIRECT_JUMP, f"at {jump.address:#x}")
        return jump.target

    def _exit(self, operation: Exit, last: object, condition: Formula, loop: Loop, state: State, walk: _Walk,
              counter: str) -> int | None:
        """The target when the branch is taken, None when the block goes on."""
        other = last.target if isinstance(last, Jump) and isinstance(last.target, int) else None
        taken_leaves, other_leaves = operation.target not in loop.blocks, other not in loop.blocks
        if taken_leaves == other_leaves or isinstance(condition, bool):
            if not self._decide(condition):
                if isinstance(condition, bool) and other_leaves and other is not None:
                    walk.exits.append((True, dict(state), len(walk.items), other))
                    return other
                return None
            if taken_leaves:
                walk.exits.append((True, dict(state), len(walk.items), operation.target))
            return operation.target
        leaving = condition if taken_leaves else negate(condition)
        stay, leave = (None, operation.target) if taken_leaves else (operation.target, other)
        assert leave is not None
        if not walk.guessing and not _depends(leaving, counter):
            if self._decide(leaving):
                walk.exits.append((True, dict(state), len(walk.items), leave))
                return leave
            return stay
        walk.exits.append((leaving, dict(state), len(walk.items), leave))
        return stay

    def _decide(self, formula: Formula) -> bool:
        """Which way a branch goes in every iteration: by the sample; what that takes becomes obligations."""
        match formula:
            case bool():
                return formula
            case Opaque():
                raise Rejected(Reason.DATA_DEPENDENT_BRANCH, f"at {self.algebra.address:#x}")
            case Not(operand):
                return not self._decide(operand)
            case Either(left, right):
                for part in (left, right):
                    if self._sample(part):
                        return self._decide(part)
                return self._decide(left) or self._decide(right)
            case Atom():
                return self._decide_atom(formula)

    def _decide_atom(self, atom: Atom) -> bool:
        for need in atom.needs:
            self.algebra.require(need, "a comparison does not wrap around")
        number = self.algebra.at_sample(atom.linear)
        why = f"the branch at {self.algebra.address:#x} goes one way"
        if atom.equal and number == 0:
            self.algebra.require(atom.linear, why)
            self.algebra.require(-atom.linear, why)
            return True
        if number >= 0:
            self.algebra.require(atom.linear - (1 if atom.equal else 0), why)
            return not atom.equal
        self.algebra.require(-atom.linear - 1, why)
        return False

    def _sample(self, formula: Formula) -> bool:
        match formula:
            case bool():
                return formula
            case Not(operand):
                return not self._sample(operand)
            case Either(left, right):
                return self._sample(left) or self._sample(right)
            case Atom(linear, equal, _):
                number = self.algebra.at_sample(linear)
                return number == 0 if equal else number >= 0
            case Opaque():
                raise Rejected(Reason.DATA_DEPENDENT_BRANCH, f"at {self.algebra.address:#x}")

    # -- locations and memory -----------------------------------------------------------------------------------

    def _operand(self, temps: dict[int, Value], operand: Operand) -> Value:
        if isinstance(operand, Literal):
            return constant(operand.value, operand.width)
        return temps[operand.index]

    def _get(self, state: State, location: str) -> Value:
        if location not in state:
            raise Rejected(Reason.UNSUPPORTED_INSTRUCTION, f"{location} read at {self.algebra.address:#x}")
        return state[location]

    def _pointer(self, value: Value) -> Linear:
        linear = self.algebra.linear(value)
        if linear is None:
            raise Rejected(Reason.DATA_DEPENDENT_ADDRESS, f"at {self.algebra.address:#x}")
        return linear

    def _slot(self, pointer: Linear, width: int) -> str | None:
        displacement = pointer - self.facts.symbol("rsp")
        return f"{SLOT}{displacement.constant}:{width}" if displacement.is_constant else None

    def _load(self, state: State, walk: _Walk, pointer: Linear, width: int) -> Value:
        slot = self._slot(pointer, width)
        if slot is not None:
            return self._load_slot(state, slot)
        symbol = self.cells.get(pointer)
        if symbol is not None and self.facts.cells[symbol][1] >= width:
            return self._cell(symbol, width)
        event = LoadEvent(len(self.loads), pointer, width, self.algebra.address)
        self.loads.append(event)
        walk.items.append(event)
        return Loaded(event.identity, width)

    def _load_slot(self, state: State, slot: str) -> Value:
        value = state.get(slot)
        if value is not None:
            return value
        low, size = _slot_range(slot)
        for other in [place for place in state if place.startswith(SLOT)]:
            start, length = _slot_range(other)
            if start == low and length > size:
                return self.algebra.compute("trunc", (state[other],), size * 8)
            if start < low + size and low < start + length and other in self.slots:
                raise Rejected(Reason.CARRIED_VALUE, f"mixed widths on the stack at {self.algebra.address:#x}")
        known = self.cells.get(self.facts.symbol("rsp") + low)
        if known is not None and self.facts.cells[known][1] > size * 8:
            whole = f"{SLOT}{low}:{self.facts.cells[known][1]}"
            return self.algebra.compute("trunc", (self._load_slot(state, whole),), size * 8)
        state[slot] = self._live_slot(slot)
        return state[slot]

    def _live_slot(self, slot: str) -> Value:
        low, size = _slot_range(slot)
        address = self.facts.symbol("rsp") + low
        symbol = self.cells.get(address)
        if symbol is None or self.facts.cells[symbol][1] < size * 8:
            raise Promote(address, size * 8)
        return self._cell(symbol, size * 8)

    def _cell(self, symbol: str, width: int) -> Value:
        whole = Integer(self.facts.symbol(symbol), self.facts.cells[symbol][1])
        return whole if whole.width == width else self.algebra.compute("trunc", (whole,), width)

    def _store(self, state: State, walk: _Walk, pointer: Linear, value: Value, width: int) -> None:
        slot = self._slot(pointer, width)
        if slot is None:
            walk.items.append(StoreEvent(pointer, value, width, self.algebra.address))
            return
        low, size = _slot_range(slot)
        for other in [place for place in state if place.startswith(SLOT) and place != slot]:
            start, length = _slot_range(other)
            if start < low + size and low < start + length:
                raise Rejected(Reason.CARRIED_VALUE, f"mixed widths on the stack at {self.algebra.address:#x}")
        self.slots.add(slot)
        state[slot] = value


def _stack_stores(block: Block) -> set[str]:
    """Slots that the block writes through rsp itself, as long as it leaves rsp alone."""
    offsets: dict[int, int] = {}
    found: set[str] = set()
    for operation in block.operations:
        match operation:
            case Get(_, result, "rsp", _):
                offsets[result] = 0
            case Compute(_, result, "add", (Temp(index), Literal(value, 64)), 64) if index in offsets:
                offsets[result] = offsets[index] + centred(value, 64)
            case Store(_, Temp(index), _, width) if index in offsets:
                found.add(f"{SLOT}{offsets[index]}:{width}")
            case Put(_, "rsp", _):
                return set()
    return found


def _name(loop: Loop) -> str:
    return f"{loop.header:x}"


def _slot_range(slot: str) -> tuple[int, int]:
    _, low, bits = slot.split(":")
    return int(low), int(bits) // 8


def _bits(location: str) -> int:
    return _slot_range(location)[1] * 8 if location.startswith(SLOT) else 64


def _width(formula: Formula) -> int:
    atom = formula.operand if isinstance(formula, Not) else formula
    return atom.width if isinstance(atom, Atom) else 64


def _is_equality(formula: Formula) -> bool:
    atom = formula.operand if isinstance(formula, Not) else formula
    return isinstance(atom, Atom) and atom.equal


def _depends(formula: Formula, counter: str) -> bool:
    match formula:
        case Atom(linear, _, _):
            return linear.coefficient(counter) != 0
        case Not(operand):
            return _depends(operand, counter)
        case Either(left, right):
            return _depends(left, counter) or _depends(right, counter)
    return isinstance(formula, Opaque)


def _condition(algebra: Algebra, operands: tuple[Value | None, ...]) -> Value:
    """Flags to a comparison, once it is known which operation set them (memopt.x86.conditions)."""
    number = CARRY if operands[0] is None else constant_of(operands[0])
    values = [o for o in operands[1:] if o is not None]
    operation = constant_of(values[0])
    if number is None or operation is None:
        return Truth(Opaque(Node("condition", tuple(values), 1)))
    found = expand_condition(number, operation, values[1], values[2], values[3],
                             algebra.compute, constant, algebra.address)
    return algebra.compute(found.operator, (found.left, found.right), 1)
