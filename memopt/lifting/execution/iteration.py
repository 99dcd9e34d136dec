"""One iteration of a loop, executed symbolically: what it did, and the ways on which it may leave the loop."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from memopt.cfg.dominators import immediate_postdominators
from memopt.ir.graph import FlowGraph, Loop, LoopForest
from memopt.ir.linear import Linear
from memopt.ir.operations import (
    CHECK,
    RAISING,
    Block,
    Compute,
    Exit,
    Forget,
    Get,
    Jump,
    Literal,
    Load,
    Operand,
    Put,
    Store,
    called,
)
from memopt.ir.reasons import Reason, Rejected
from memopt.lifting.execution.assumptions import TO_THE_END, State
from memopt.lifting.execution.branches import Branches, Conditions, depends
from memopt.lifting.execution.copy_operators import ABOUT_COPIES
from memopt.lifting.execution.if_conversion import (
    MOST_CHOICES,
    compared_in,
    if_convert,
    if_convert_states,
    masked,
    raises_alone,
    repeats,
)
from memopt.lifting.execution.invariant_compares import COMPARISONS, Fixed, compared, normal
from memopt.lifting.execution.memory import MemoryModel
from memopt.lifting.execution.merge import Path, merge_paths
from memopt.lifting.execution.sqrt_exits import answered, elsewhere, invalid_root
from memopt.lifting.values.algebra import LOOP_COUNTER, Algebra, fixable
from memopt.lifting.values.canonical import canonical_formula
from memopt.lifting.values.loop_tree import Item, Raising, Read
from memopt.lifting.values.requests import MaskOperands
from memopt.lifting.values.values import (
    Formula,
    Integer,
    LiveVector,
    Loaded,
    Node,
    Value,
    both,
    constant,
    constant_of,
    data,
    negate,
    within,
)


@dataclass(frozen=True, slots=True)
class LoopExit:
    """A test that leaves the loop; before it come ``items`` items, ``obligations`` of the algebra's list, and the
    operations ``raising``."""

    condition: Formula
    state: State
    items: int
    target: int
    obligations: int
    raising: tuple[Raising, ...]


@dataclass(frozen=True, slots=True)
class LoopSummary:
    """A loop met inside an iteration of another: the state after it, what it did, where control goes, and what the part
    of an iteration raised that comes last."""

    state: State
    items: list[Item]
    target: int
    raising: dict[Raising, None] = field(default_factory=dict)
    reads: tuple[Read, ...] = ()


@dataclass
class Iteration:
    """One iteration of the loop of ``counter``: what happened, and how it left the loop."""

    counter: str
    items: list[Item] = field(default_factory=list)
    state: State | None = None  # at the back edge
    exits: list[LoopExit] = field(default_factory=list)
    ended: bool = False  # the iteration always leaves
    obligations: int = 0  # how many there are after it
    roots: list[Value] = field(default_factory=list)  # the iteration goes on only when these are not below zero
    guessing: bool = False  # header values are unknown: stay in the loop whatever the test says
    raising: dict[Raising, None] = field(default_factory=dict)  # in their order
    reads: dict[Read, None] = field(default_factory=dict)

    def read(self, reads: Iterable[Read], conditions: tuple[Linear, ...] = ()) -> None:
        """Note what is read at this point, where ``conditions`` are >= 0."""
        late = bool(self.exits or self.roots)
        self.reads |= {replace(r, conditions=(*conditions, *r.conditions), late=late or r.late): None for r in reads}


@dataclass(frozen=True, slots=True)
class _Place:
    """An operation of a block, and the temporaries that are known there."""

    block: int
    index: int = 0
    temps: dict[int, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Fork:
    """A branch that goes different ways in different iterations; all of them come to ``join``.

    ``choice``: when not None, whether the first of two ways is gone, which depends on data."""

    address: int
    ways: tuple[tuple[Conditions, _Place], ...]
    join: int
    choice: Formula | None = None

    @property
    def leaves(self) -> Rejected:
        return Rejected(Reason.TRIP_COUNT if self.choice is None else Reason.DATA_DEPENDENT_BRANCH,
                        f"the branch at {self.address:#x} leaves the loop in some iterations")


@dataclass(frozen=True, slots=True)
class IterationExecutor:
    """``lift`` gives the operations of a basic block, ``inner`` summarises a loop met inside an iteration,
    ``go_on`` raises Rejected where that takes too long: the ways of branches multiply."""

    graph: FlowGraph
    forest: LoopForest
    lift: Callable[[int], Block]
    algebra: Algebra
    places: MemoryModel
    exits: Branches
    inner: Callable[[Loop, State], LoopSummary]
    go_on: Callable[[], None]
    zeros: dict[str, int] = field(default_factory=dict)  # lanes that must be zero, with the bits that are compared
    fixed: Fixed = field(default_factory=dict)
    choices: set[int] = field(default_factory=set)  # branches on data
    unordered: set[int] = field(default_factory=set)  # those that leave for a NaN too
    under: list[tuple[int, Formula]] = field(default_factory=list)  # branches with masked operations: the ways gone
    masked: dict[Value, frozenset[int]] = field(default_factory=dict)  # operations, and by which branches

    def name(self, loop: Loop) -> str:
        return f"{loop.header:x}{self.algebra.copy}"

    def counter(self, loop: Loop) -> str:
        return LOOP_COUNTER + self.name(loop)

    def execute(self, loop: Loop, state: State, guessing: bool = False) -> Iteration:
        walk = Iteration(self.counter(loop), guessing=guessing)
        address, state = self._path(loop, _Place(loop.header), dict(state), walk, None)
        walk.roots = [] if guessing else elsewhere(walk.roots, walk.items)
        walk.ended = address != loop.header
        if not walk.ended:
            walk.state = state
        elif address is not None:
            walk.exits.append(self._leaving(True, state, walk, address))
        walk.obligations = len(self.algebra.obligations)
        return walk

    def _children(self, loop: Loop) -> Iterator[Loop]:
        for inner in (self.forest.loops[n] for n in loop.children):
            if inner.header in self.places.facts.inlined:
                yield from self._children(inner)
            else:
                yield inner

    def _leaving(self, condition: Formula, state: State, walk: Iteration, target: int) -> LoopExit:
        return LoopExit(condition, dict(state), len(walk.items), target, len(self.algebra.obligations),
                        tuple(walk.raising))

    def _path(self, loop: Loop, place: _Place, state: State, walk: Iteration,
              join: int | None) -> tuple[int | None, State]:
        """From ``place`` to ``join``, the header or out of the loop; no address when an exit was noted already."""
        children = {inner.header: inner for inner in self._children(loop)}
        following: int | _Fork | None
        seen: set[int] = set()
        while True:
            if not place.index and place.block == join:
                return join, state
            if place.block in seen:
                raise Rejected(Reason.NOT_A_NEST, f"{place.block:#x} is reached again in one iteration")
            seen.add(place.block)
            if not place.index and place.block in children:
                passed = self.inner(children[place.block], state)
                state, following = passed.state, passed.target
                walk.items += passed.items
                walk.raising |= passed.raising
                walk.read(passed.reads)
            else:
                following = self._block(place, loop, state, walk)
                if isinstance(following, _Fork):
                    state, following = self._fork(following, loop, state, walk)
            if following is None or following == loop.header or following not in loop.blocks:
                return following, state
            place = _Place(following)

    def _fork(self, fork: _Fork, loop: Loop, state: State, walk: Iteration) -> tuple[State, int]:
        self.go_on()
        try:
            return self._ways_to_join(fork, loop, state, walk)
        except Rejected:
            self._fix_compared(fork)
            raise

    def _fix_compared(self, fork: _Fork) -> None:
        """Ask for the numbers that the branch compares and that come from one cell throughout."""
        choice = () if fork.choice is None else data(fork.choice)
        found = (v for value in choice for v in within(value) if isinstance(v, Node) and v.operator in COMPARISONS)
        for part in (p for comparison in found for p in within(comparison)):
            if isinstance(part, Loaded):
                self.algebra.integer(part)

    def _ways_to_join(self, fork: _Fork, loop: Loop, state: State, walk: Iteration) -> tuple[State, int]:
        """Every way up to the join, and what can be said there."""
        ways: list[Path] = []
        exits: list[list[LoopExit]] = []
        raising: list[dict[Raising, None]] = []
        reads: list[dict[Read, None]] = []
        for number, (conditions, place) in enumerate(fork.ways):
            part = Iteration(walk.counter, guessing=walk.guessing, raising=dict(walk.raising))
            with self.algebra.under(conditions, number), self._masking(fork, number):
                end, after = self._path(loop, place, dict(state), part, fork.join)
            if not walk.guessing and elsewhere(part.roots, part.items):
                raise invalid_root(self.algebra.address)
            if end != fork.join:
                raise fork.leaves
            ways.append(Path(conditions, part.items, after))
            exits.append(part.exits)
            raising.append(part.raising)
            reads.append(part.reads)
        self.algebra.address = fork.address
        if fork.choice is not None:
            masked_here = {v for v, forks in self.masked.items() if fork.address in forks}
            if raises_alone(raising, masked_here, self._normal):
                if fork.address not in self.places.facts.masked:
                    raise MaskOperands(fork.address)
                raise Rejected(Reason.DATA_DEPENDENT_BRANCH, f"at {fork.address:#x}, for floating-point operations")
            items, merged = if_convert(fork.choice, ways, walk.items, self.places)
        else:
            items, merged = merge_paths(ways, self.algebra, self.places, self.places.facts.split[fork.address] > 1)
        walk.items += items
        common = set(raising[0]).intersection(*raising)
        for way, operations in zip(ways, raising, strict=True):
            walk.raising |= {o if o in common else (o[0], (*way.conditions, *o[1])): None for o in operations}
        walk.read(r for r in reads[0] if all(r in other for other in reads))
        if fork.choice is None:
            for way, found in zip(ways, reads, strict=True):
                walk.read(found, way.conditions)
        if any(exits):
            walk.exits.append(self._joined_exit(fork, ways, exits, walk))
        return merged, fork.join

    @contextmanager
    def _masking(self, fork: _Fork, number: int) -> Iterator[None]:
        """While way ``number`` of ``fork`` is gone."""
        if fork.choice is None or fork.address not in self.places.facts.masked:
            yield
            return
        self.under.append((fork.address, fork.choice if number == 0 else negate(fork.choice)))
        try:
            yield
        finally:
            self.under.pop()

    def _normal(self, value: Value) -> bool:
        return normal(self._number(value), self.places.facts.vectors, self.fixed)

    def _joined_exit(self, fork: _Fork, ways: list[Path], exits: list[list[LoopExit]], walk: Iteration) -> LoopExit:
        """The test at the end of the loop, which compilers copy to the end of each way."""
        points = [e[0] for e in exits if len(e) == 1]
        tests = {(p.condition, p.target) for p in points}
        if len(points) != len(ways) or len(tests) != 1 or any(
                Path((), w.items[p.items:], {}).acts for w, p in zip(ways, points, strict=True)):
            raise fork.leaves
        left = [Path(w.conditions, w.items, p.state) for w, p in zip(ways, points, strict=True)]
        if fork.choice is not None:
            state = if_convert_states(fork.choice, left, self.places)
        else:
            _, state = merge_paths(left, self.algebra, self.places, self.places.facts.split[fork.address] > 1)
        (condition, target), = tests
        return self._leaving(condition, state, walk, target)

    def _block(self, place: _Place, loop: Loop, state: State, walk: Iteration) -> int | _Fork | None:
        """Run a basic block from ``place``; where control goes then, None when an exit was noted that is always
        taken. Alignment is not looked at: a misaligned access faults in the original as well."""
        block = self.lift(place.block)
        temps = dict(place.temps)
        for index, operation in enumerate(block.operations[place.index:], place.index):
            self.algebra.address = operation.address
            match operation:
                case Get():
                    temps[operation.result] = self.places.get(state, operation.location)
                case Put():
                    if operation.location != "rip":
                        state[operation.location] = self._operand(temps, operation.value)
                case Compute():
                    fork = self._compute(operation, _Place(place.block, index + 1, temps), loop, walk)
                    if fork is not None:
                        return fork
                case Load():
                    pointer = self.places.pointer(self._operand(temps, operation.pointer))
                    temps[operation.result] = self.places.load(state, walk.items, pointer, operation.width)
                    walk.read([Read(pointer, operation.width)] if fixable(pointer) else [])
                case Store():
                    pointer = self.places.pointer(self._operand(temps, operation.pointer))
                    value = self._operand(temps, operation.value)
                    self.places.store(state, walk.items, pointer, value, operation.width)
                case Exit():
                    condition = self.algebra.truth(self._operand(temps, operation.condition))
                    target = self._exit(operation, block, condition, loop, state, walk)
                    if isinstance(target, _Fork):
                        return target
                    if target is not None:
                        return target if target in loop.blocks else None
                case Jump():
                    return self._jump(operation)
                case Forget(_, in_rax):
                    self.places.forget(state, in_rax)
        raise Rejected(Reason.INDIRECT_JUMP, f"{place.block:#x}")

    def _compute(self, operation: Compute, place: _Place, loop: Loop, walk: Iteration) -> _Fork | None:
        operands = tuple(self._operand(place.temps, o) for o in operation.operands)
        about = ABOUT_COPIES.get(operation.operator)
        result = (self.algebra.compute(operation.operator, operands, operation.width) if about is None else
                  about(self.algebra, tuple(map(self.places.pointer, operands))))
        flags = None
        if operation.operator in COMPARISONS:
            left, right = map(self._number, operands)
            flags = compared(left, right, self.places.facts.vectors, self.fixed)
        if flags is not None:
            result = constant(flags, operation.width)
            for operand in operands:  # widened exactly: numbers that are compared like this are normal
                walk.raising.pop((operand, ()), None)
        elif operation.operator in RAISING or called(operation.operator) is not None:
            if self.under and (result, ()) not in walk.raising and operation.operator in RAISING and not repeats(
                    result, compared_in(walk.raising), self._normal):
                forks, ways = zip(*self.under, strict=True)
                way = functools.reduce(both, ways)
                result = self.algebra.compute(operation.operator, masked(
                    way, operation.operator, operands, self._normal), operation.width)
                self.masked[result] = self.masked.get(result, frozenset()) | set(forks)
            walk.raising[result, ()] = None
            if operation.operator.startswith(CHECK):
                self.zeros.setdefault("", 0)
        place.temps[operation.result] = result
        if operation.operator == "select" and isinstance(result, Node) and result.operator == "select":
            if operation.address in self.places.facts.split:
                return self._selection(operation, operands, place, loop)
            self.algebra.selections[result] = operation.address
        return None

    def _number(self, operand: Value) -> Value:
        """An operand of a comparison as a number, if it is one that the loop does not change."""
        match operand:
            case Node("f32to64" as name, (single,), width):
                return Node(name, (self._number(single),), width)
            case Integer(linear, width) if not linear.is_constant and self.algebra.settles(linear):
                return constant(self.algebra.specialised(linear).constant, width)
        return operand

    def _selection(self, operation: Compute, operands: tuple[Value, ...], place: _Place, loop: Loop) -> _Fork:
        """A conditional move as a branch, up to the last block that every iteration runs."""
        condition = self.algebra.truth(operands[0])
        after = self._joins_of(operation.address, loop)
        join = place.block
        while join in after:
            join = after[join]
        ways = self._ways(operation.address, condition)
        places = tuple((c, replace(place, temps={**place.temps, operation.result: operands[1 if taken else 2]}))
                       for c, taken in ways)
        return _Fork(operation.address, places, loop.header if join == place.block else join)

    def _ways(self, address: int, condition: Formula) -> list[tuple[Conditions, bool]]:
        general = self.places.facts.split[address] > 1
        return [(conditions, taken) for taken in (True, False)
                for conditions in self.exits.ways(condition if taken else negate(condition), general)]

    def _joins_of(self, address: int, loop: Loop) -> dict[int, int]:
        """``_joins`` for the branch at ``address``; its ways may have to stay apart to the end."""
        return self._joins(loop) if self.places.facts.split[address] < TO_THE_END else {}

    def _joins(self, loop: Loop) -> dict[int, int]:
        """Where the ways of a branch in a block of ``loop`` meet: not in the middle of an inner loop, which may be
        entered there as well but is run as a whole from its header on."""
        after = immediate_postdominators(FlowGraph(loop.header, self.graph.blocks), loop.blocks)
        middles = {b for inner in self._children(loop) for b in inner.blocks - {inner.header}}
        found: dict[int, int] = {}
        for block, join in after.items():
            while join in middles and join in after:
                join = after[join]
            if join not in middles:
                found[block] = join
        return found

    @staticmethod
    def _jump(jump: Jump) -> int:
        if jump.kind == "call":
            raise Rejected(Reason.CALL, f"at {jump.address:#x}")
        if jump.kind not in ("boring", "fallthrough") or not isinstance(jump.target, int):
            raise Rejected(Reason.INDIRECT_JUMP, f"at {jump.address:#x}")
        return jump.target

    def _exit(self, operation: Exit, block: Block, condition: Formula, loop: Loop, state: State,
              walk: Iteration) -> int | _Fork | None:
        """The target when the branch is taken, None when the block goes on."""
        last = block.operations[-1]
        other = last.target if isinstance(last, Jump) and isinstance(last.target, int) else None
        taken_leaves, other_leaves = operation.target not in loop.blocks, other not in loop.blocks
        if taken_leaves == other_leaves or isinstance(condition, bool):
            if other is not None and operation.address in self.places.facts.split and not isinstance(condition, bool):
                ways = self._ways(operation.address, condition)
                places = tuple((c, _Place(operation.target if taken else other)) for c, taken in ways)
                return _Fork(operation.address, places,
                             self._joins_of(operation.address, loop).get(block.address, loop.header))
            if other is not None and not taken_leaves and any(True for _ in data(condition)):
                return self._choice(operation, other, condition, block, loop)
            if not self.exits.decide(condition):
                if isinstance(condition, bool) and other_leaves and other is not None:
                    walk.exits.append(self._leaving(True, state, walk, other))
                    return other
                return None
            if taken_leaves:
                walk.exits.append(self._leaving(True, state, walk, operation.target))
            return operation.target
        leaving = condition if taken_leaves else negate(condition)
        root = self._invalid_root(leaving)
        if root is not None:
            walk.roots.append(root)
            for look in answered(leaving, self.algebra.address in self.unordered):
                walk.raising.pop((look, ()), None)
            return None if taken_leaves else operation.target
        stay, leave = (None, operation.target) if taken_leaves else (operation.target, other)
        assert leave is not None
        if not walk.guessing and not depends(leaving, walk.counter):
            if self.exits.decide(leaving):
                walk.exits.append(self._leaving(True, state, walk, leave))
                return leave
            return stay
        walk.exits.append(self._leaving(leaving, state, walk, leave))
        return stay

    def _choice(self, operation: Exit, other: int, condition: Formula, block: Block, loop: Loop) -> _Fork:
        self.choices.add(operation.address)
        if len(self.choices) > MOST_CHOICES:
            raise Rejected(Reason.DATA_DEPENDENT_BRANCH, f"at {operation.address:#x}, and {MOST_CHOICES} others")
        places = tuple(((), _Place(target)) for target in (operation.target, other))
        return _Fork(operation.address, places, self._joins(loop).get(block.address, loop.header), condition)

    def _invalid_root(self, leaving: Formula) -> Value | None:
        """x when ``leaving`` says 0 > x, for a floating-point number: sqrt(x) is invalid exactly then (or for a
        signalling NaN). The zero may be in a register that the region never changes. Or x when it says that 0 <= x
        does not hold: for a NaN as well, so nothing may be one that no invalid operation has made."""
        if not list(data(leaving)):
            return None
        condition = canonical_formula(leaving)
        match condition:
            case Node("not", (Node("fle" | "fqle", (zero, root), _),), 1):
                condition = Node("flt", (root, zero), 1)
                self.unordered.add(self.algebra.address)
        match condition:
            case Node("flt" | "fqlt", (Node("f32to64", (root,), _), Node("f32to64", (zero,), _)), 1):
                condition = Node("flt", (root, zero), 1)  # as single precision is compared
        match condition:
            case Node("flt" | "fqlt", (root, Integer() as zero), 1) if constant_of(zero) == 0:
                self.zeros.setdefault("", 0)
                return root
            case Node("flt" | "fqlt", (root, LiveVector() | Node("part", (LiveVector(), _), 32) as zero), 1):
                lane = zero if isinstance(zero, LiveVector) else zero.operands[0]
                assert isinstance(lane, LiveVector)
                name, _, number = lane.location.partition(".")
                offset = 8 * int(number)
                held = self.places.facts.vectors.get(name, b"")[offset:offset + root.width // 8]
                if held and not any(held) and (isinstance(zero, LiveVector) or constant_of(zero.operands[1]) == 0):
                    self.zeros[lane.location] = root.width
                    return root
        return None

    def _operand(self, temps: dict[int, Value], operand: Operand) -> Value:
        if isinstance(operand, Literal):
            return constant(operand.value, operand.width)
        return temps[operand.index]
