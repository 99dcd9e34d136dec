"""Symbolic execution of one iteration of a loop, from the header to the back edge or out of the loop.

Example: the body of ``do { x = a[i]; if (x > m) x = m; b[i] = x; } while (++i < n);`` gives two items, a load of
``a + 8*i`` and a store of ``select(v0 > m, m, v0)``, one exit with the condition ``i + 1 >= n``, and the state at the
back edge, in which ``i`` is ``i + 1``.

In: the loop and the symbolic state at its header. Out: an ``Iteration``.

A branch inside the loop is treated in one of these ways:

- Its condition is affine: it is decided as at the captured values (``branches``), for all iterations.
- Its condition is affine, but a request has marked the branch as split: both paths are executed up to the immediate
  postdominator, where ``merge`` joins the states. On loaded data: likewise, and ``if_conversion`` joins them.
- One of its targets lies outside the loop: the exit is noted, and execution goes on inside. An exit that is taken for a
  negative operand of a square root is no exit (``sqrt_exits``).

An inner loop that is met on the way is replaced by its summary.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field, replace

from memopt.cfg.dominators import immediate_postdominators
from memopt.ir.frozen import dataclass
from memopt.ir.graph import FlowGraph, Loop, LoopForest
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
from memopt.lifting.execution.branches import Branches, Conditions, depends_on
from memopt.lifting.execution.copy_operators import COPY_OPERATORS
from memopt.lifting.execution.if_conversion import (
    MOST_CHOICES,
    compared_in,
    if_convert,
    if_convert_states,
    masked,
    raises_alone,
    repeats,
)
from memopt.lifting.execution.invariant_compares import COMPARISONS, Fixed, comparison_flags, is_normal
from memopt.lifting.execution.iteration_result import Iteration, LoopExit, LoopSummary
from memopt.lifting.execution.memory import MemoryModel
from memopt.lifting.execution.merge import Path, merge_paths
from memopt.lifting.execution.sqrt_exits import covered_by_root, invalid_root, roots_not_stored
from memopt.lifting.values.algebra import LOOP_COUNTER, Algebra, fixable
from memopt.lifting.values.bounds import contradictory
from memopt.lifting.values.budget import Budget
from memopt.lifting.values.canonical import canonical_formula
from memopt.lifting.values.loop_tree import Raising, Read
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
class _Point:
    """Where to continue inside a block: the index of an operation, and the temporaries computed before it."""

    block: int
    index: int = 0
    temps: dict[int, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Fork:
    """A branch that takes different paths in different iterations; all of them reach the block ``join``."""

    address: int
    ways: tuple[tuple[Conditions, _Point], ...]  # the conditions of each path, and where it starts
    join: int
    choice: Formula | None = None  # of a branch on data: the condition under which the first of two paths is taken

    @property
    def leaves(self) -> Rejected:
        """The error for a path that leaves the loop instead of reaching the join."""
        return Rejected(Reason.TRIP_COUNT if self.choice is None else Reason.DATA_DEPENDENT_BRANCH,
                        f"the branch at {self.address:#x} leaves the loop in some iterations")


@dataclass(frozen=True, slots=True)
class IterationExecutor:
    """Executes single iterations. The fields from ``zeros`` on collect what the whole attempt relies on."""

    graph: FlowGraph
    forest: LoopForest
    lift: Callable[[int], Block]  # the operations of the basic block at an address
    algebra: Algebra
    memory: MemoryModel
    branches: Branches
    inner: Callable[[Loop, State], LoopSummary]  # summarises a loop that is met inside an iteration
    budget: Budget  # checked at each branch: the number of paths multiplies
    roots: frozenset[int]  # exits at which a square root is called, before the iteration goes on
    zeros: dict[str, int] = field(default_factory=dict)  # lanes that must be zero, with the bits that are compared
    fixed: Fixed = field(default_factory=dict)  # lanes that decided a branch, with their numbers
    choices: set[int] = field(default_factory=set)  # addresses of branches on data
    unordered: set[int] = field(default_factory=set)  # addresses of square-root exits that are taken for a NaN, too
    # The enclosing branches whose operations are masked: address, and the condition of the current path.
    under: list[tuple[int, Formula]] = field(default_factory=list)
    masked: dict[Value, frozenset[int]] = field(default_factory=dict)  # masked operation -> addresses of its branches

    def name(self, loop: Loop) -> str:
        """The loop's name in Carried and Final values; copies of a loop on several paths have names of their own."""
        return f"{loop.header:x}{self.algebra.copy}"

    def counter(self, loop: Loop) -> str:
        """The symbol that counts the iterations of ``loop`` from 0."""
        return LOOP_COUNTER + self.name(loop)

    def execute(self, loop: Loop, state: State, guessing: bool = False) -> Iteration:
        """Execute one iteration of ``loop`` from ``state`` at its header, which is left unchanged."""
        walk = Iteration(self.counter(loop), guessing=guessing)
        address, state = self._path(loop, _Point(loop.header), dict(state), walk, None)
        walk.roots = [] if guessing else roots_not_stored(walk.roots, walk.items)
        walk.ended = address != loop.header
        if not walk.ended:
            walk.state = state
        elif address is not None:
            walk.exits.append(self._leaving(True, state, walk, address))
        walk.obligations = len(self.algebra.obligations)
        return walk

    def _children(self, loop: Loop) -> Iterator[Loop]:
        """The inner loops to summarise. The inner loops of an inlined loop take its place."""
        for inner in (self.forest.loops[n] for n in loop.children):
            if inner.header in self.memory.assumptions.inlined:
                yield from self._children(inner)
            else:
                yield inner

    def _leaving(self, condition: Formula, state: State, walk: Iteration, target: int) -> LoopExit:
        return LoopExit(condition, dict(state), len(walk.items), target, len(self.algebra.obligations),
                        tuple(walk.raising))

    def _path(self, loop: Loop, place: _Point, state: State, walk: Iteration,
              join: int | None) -> tuple[int | None, State]:
        """Execute from ``place`` up to ``join``, to the header or out of the loop: the address reached, and the state.

        The address is None if an exit that is always taken was noted in ``walk`` already.
        """
        children = {inner.header: inner for inner in self._children(loop)}
        following: int | _Fork | None
        seen: set[int] = set()
        while True:
            if not place.index and place.block == join:
                return join, state
            if place.block in seen:
                raise Rejected(Reason.NOT_A_NEST, f"one iteration reaches the block at {place.block:#x} twice")
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
            place = _Point(following)

    def _fork(self, fork: _Fork, loop: Loop, state: State, walk: Iteration) -> tuple[State, int]:
        """Execute and merge the paths of ``fork``: the state at the join, and the address of the join."""
        self.budget.check()
        try:
            return self._ways_to_join(fork, loop, state, walk)
        except Rejected:
            self._ask_for_compared(fork)
            raise

    def _ask_for_compared(self, fork: _Fork) -> None:
        """Try to decide the branch, since its paths could not be merged.

        Requests (PromoteCell) the captured value of a compared operand that is loaded from a fixed address.
        """
        choice = () if fork.choice is None else data(fork.choice)
        found = (v for value in choice for v in within(value) if isinstance(v, Node) and v.operator in COMPARISONS)
        for part in (p for comparison in found for p in within(comparison)):
            if isinstance(part, Loaded):
                self.algebra.integer(part)

    def _ways_to_join(self, fork: _Fork, loop: Loop, state: State, walk: Iteration) -> tuple[State, int]:
        """Execute each path up to the join, and merge items, state, raised flags, reads and exits into ``walk``."""
        ways: list[Path] = []
        exits: list[list[LoopExit]] = []
        raising: list[dict[Raising, None]] = []
        reads: list[dict[Read, None]] = []
        for number, (conditions, place) in enumerate(fork.ways):
            part = Iteration(walk.counter, guessing=walk.guessing, raising=dict(walk.raising))
            with self.algebra.under(conditions, number), self._masking(fork, number):
                end, after = self._path(loop, place, dict(state), part, fork.join)
            if not walk.guessing and roots_not_stored(part.roots, part.items):
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
                if fork.address not in self.memory.assumptions.masked:
                    raise MaskOperands(fork.address)
                raise Rejected(Reason.DATA_DEPENDENT_BRANCH,
                               f"at {fork.address:#x}, where one path alone may raise floating-point flags")
            items, merged = if_convert(fork.choice, ways, self.memory)
        else:
            general = self.memory.assumptions.split[fork.address] > 1
            items, merged = merge_paths(ways, self.algebra, self.memory, general)
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
        """The context in which path ``number`` of ``fork`` is executed: operations on it may have to be masked."""
        if fork.choice is None or fork.address not in self.memory.assumptions.masked:
            yield
            return
        self.under.append((fork.address, fork.choice if number == 0 else negate(fork.choice)))
        try:
            yield
        finally:
            self.under.pop()

    def _normal(self, value: Value) -> bool:
        return is_normal(self._number(value), self.memory.assumptions.vectors, self.fixed)

    def _joined_exit(self, fork: _Fork, ways: list[Path], exits: list[list[LoopExit]], walk: Iteration) -> LoopExit:
        """One exit in place of the copies of the exit test that compilers put at the end of each path.

        Raises the fork's Rejected unless each path ends with the same test and does nothing after it.
        """
        points = [e[0] for e in exits if len(e) == 1]
        tests = {(p.condition, p.target) for p in points}
        if len(points) != len(ways) or len(tests) != 1 or any(
                Path((), w.items[p.items:], {}).acts for w, p in zip(ways, points, strict=True)):
            raise fork.leaves
        left = [Path(w.conditions, w.items, p.state) for w, p in zip(ways, points, strict=True)]
        if fork.choice is not None:
            state = if_convert_states(fork.choice, left, self.memory)
        else:
            _, state = merge_paths(left, self.algebra, self.memory, self.memory.assumptions.split[fork.address] > 1)
        (condition, target), = tests
        return self._leaving(condition, state, walk, target)

    def _block(self, place: _Point, loop: Loop, state: State, walk: Iteration) -> int | _Fork | None:
        """Execute a basic block from ``place``: where control goes, None if an exit that is always taken was noted.

        Alignment checks are ignored: a misaligned access faults in the original as well.
        """
        block = self.lift(place.block)
        temps = dict(place.temps)
        for index, operation in enumerate(block.operations[place.index:], place.index):
            self.algebra.address = operation.address
            match operation:
                case Get():
                    temps[operation.result] = self.memory.get(state, operation.location)
                case Put():
                    if operation.location != "rip":
                        state[operation.location] = self._operand(temps, operation.value)
                case Compute():
                    fork = self._compute(operation, _Point(place.block, index + 1, temps), loop, walk)
                    if fork is not None:
                        return fork
                case Load():
                    pointer = self.memory.pointer(self._operand(temps, operation.pointer))
                    temps[operation.result] = self.memory.load(state, walk.items, pointer, operation.width)
                    walk.read([Read(pointer, operation.width)] if fixable(pointer) else [])
                case Store():
                    pointer = self.memory.pointer(self._operand(temps, operation.pointer))
                    value = self._operand(temps, operation.value)
                    self.memory.store(state, walk.items, pointer, value, operation.width)
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
                    self.memory.forget(state, in_rax)
        raise Rejected(Reason.INDIRECT_JUMP, f"the block at {place.block:#x} has no known successor")

    def _compute(self, operation: Compute, place: _Point, loop: Loop, walk: Iteration) -> _Fork | None:
        """Compute one operation into ``place.temps``; a fork if it is a conditional move that is split in two paths."""
        operands = tuple(self._operand(place.temps, o) for o in operation.operands)
        about = COPY_OPERATORS.get(operation.operator)
        result = (self.algebra.compute(operation.operator, operands, operation.width) if about is None else
                  about(self.algebra, tuple(map(self.memory.pointer, operands))))
        flags = None
        if operation.operator in COMPARISONS:
            left, right = map(self._number, operands)
            flags = comparison_flags(left, right, self.memory.assumptions.vectors, self.fixed)
        if flags is not None:
            result = constant(flags, operation.width)
            for operand in operands:  # f32to64 of a normal number is exact, so it raises no flag
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
            if operation.address in self.memory.assumptions.split:
                return self._selection(operation, operands, place, loop)
            self.algebra.selections[result] = operation.address
        return None

    def _number(self, operand: Value) -> Value:
        """An operand of a comparison with loop-invariant integers in it replaced by their captured numbers."""
        match operand:
            case Node("f32to64" as name, (single,), width):
                return Node(name, (self._number(single),), width)
            case Integer(linear, width) if not linear.is_constant and self.algebra.settles(linear):
                return constant(self.algebra.specialised(linear).constant, width)
        return operand

    def _selection(self, operation: Compute, operands: tuple[Value, ...], place: _Point, loop: Loop) -> _Fork:
        """A conditional move as a branch whose paths join at the last block that every iteration executes."""
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
        """The paths of a split branch that are possible here: conditions on counters; whether ``condition`` holds."""
        general = self.memory.assumptions.split[address] > 1
        found = [(c, taken) for taken in (True, False)
                 for c in self.branches.ways(condition if taken else negate(condition), general)]
        return [f for f in found if not contradictory((*self.algebra.given, *f[0]))] or found

    def _joins_of(self, address: int, loop: Loop) -> dict[int, int]:
        """``_joins`` for the branch at ``address``; empty if its paths are to stay separate up to the back edge."""
        return self._joins(loop) if self.memory.assumptions.split[address] < TO_THE_END else {}

    def _joins(self, loop: Loop) -> dict[int, int]:
        """The block where the paths of a branch in each block of ``loop`` join: its immediate postdominator.

        A block in the middle of an inner loop cannot be a join, because an inner loop is executed as a whole from its
        header; the next postdominator outside of that loop takes its place.
        """
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
        """Execute a conditional branch: its target if it is taken, None if the block goes on, a fork if both happen."""
        last = block.operations[-1]
        other = last.target if isinstance(last, Jump) and isinstance(last.target, int) else None
        taken_leaves, other_leaves = operation.target not in loop.blocks, other not in loop.blocks
        if taken_leaves == other_leaves or isinstance(condition, bool):
            split = operation.address in self.memory.assumptions.split
            if other is not None and split and not isinstance(condition, bool):
                ways = self._ways(operation.address, condition)
                places = tuple((c, _Point(operation.target if taken else other)) for c, taken in ways)
                return _Fork(operation.address, places,
                             self._joins_of(operation.address, loop).get(block.address, loop.header))
            if other is not None and not taken_leaves and any(True for _ in data(condition)):
                return self._choice(operation, other, condition, block, loop)
            if not self.branches.decide(condition):
                if isinstance(condition, bool) and other_leaves and other is not None:
                    walk.exits.append(self._leaving(True, state, walk, other))
                    return other
                return None
            if taken_leaves:
                walk.exits.append(self._leaving(True, state, walk, operation.target))
            return operation.target
        leaving = condition if taken_leaves else negate(condition)
        root = self._invalid_root(leaving) if (operation.target if taken_leaves else other) in self.roots else None
        if root is not None:
            walk.roots.append(root)
            for look in covered_by_root(leaving, self.algebra.address in self.unordered):
                walk.raising.pop((look, ()), None)
            return None if taken_leaves else operation.target
        stay, leave = (None, operation.target) if taken_leaves else (operation.target, other)
        assert leave is not None
        if not walk.guessing and not depends_on(leaving, walk.counter):
            if self.branches.decide(leaving):
                walk.exits.append(self._leaving(True, state, walk, leave))
                return leave
            return stay
        walk.exits.append(self._leaving(leaving, state, walk, leave))
        return stay

    def _choice(self, operation: Exit, other: int, condition: Formula, block: Block, loop: Loop) -> _Fork:
        """The fork of a branch on loaded data. Raises Rejected(DATA_DEPENDENT_BRANCH) beyond MOST_CHOICES branches."""
        self.choices.add(operation.address)
        if len(self.choices) > MOST_CHOICES:
            raise Rejected(Reason.DATA_DEPENDENT_BRANCH,
                           f"at {operation.address:#x}, after {MOST_CHOICES} others in this loop")
        places = tuple(((), _Point(target)) for target in (operation.target, other))
        return _Fork(operation.address, places, self._joins(loop).get(block.address, loop.header), condition)

    def _invalid_root(self, leaving: Formula) -> Value | None:
        """The value x if ``leaving`` is ``x < 0`` or ``not 0 <= x`` for a floating-point x; else None.

        sqrt(x) is invalid exactly if x < 0, or for a signalling NaN. The zero may be in a register that the region
        never changes. ``not 0 <= x`` also holds for a quiet NaN, whose root raises nothing. Then the region may contain
        no NaN but those that an invalid operation has made (``unordered``).
        """
        if not list(data(leaving)):
            return None
        condition = canonical_formula(leaving)
        match condition:
            case Node("not", (Node("fle" | "fqle", (zero, root), _),), 1):
                condition = Node("flt", (root, zero), 1)
                self.unordered.add(self.algebra.address)
        match condition:
            case Node("flt" | "fqlt", (Node("f32to64", (root,), _), Node("f32to64", (zero,), _)), 1):
                condition = Node("flt", (root, zero), 1)  # single precision is compared after an exact f32to64
        match condition:
            case Node("flt" | "fqlt", (root, Integer() as zero), 1) if constant_of(zero) == 0:
                self.zeros.setdefault("", 0)
                return root
            case Node("flt" | "fqlt", (root, LiveVector() | Node("part", (LiveVector(), _), 32) as zero), 1):
                lane = zero if isinstance(zero, LiveVector) else zero.operands[0]
                assert isinstance(lane, LiveVector)
                name, _, number = lane.location.partition(".")
                offset = 8 * int(number)
                raw = self.memory.assumptions.vectors.get(name, b"")[offset:offset + root.width // 8]
                if raw and not any(raw) and (isinstance(zero, LiveVector) or constant_of(zero.operands[1]) == 0):
                    self.zeros[lane.location] = root.width
                    return root
        return None

    def _operand(self, temps: dict[int, Value], operand: Operand) -> Value:
        return constant(operand.value, operand.width) if isinstance(operand, Literal) else temps[operand.index]
