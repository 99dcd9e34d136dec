"""One iteration of a loop, executed symbolically: what it did, and the ways on which it may leave the loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from memopt.analysis.algebra import LOOP_COUNTER, Algebra
from memopt.analysis.exits import Exits, depends
from memopt.analysis.facts import State
from memopt.analysis.nest import Item
from memopt.analysis.places import Places
from memopt.analysis.values import Formula, Value, constant, negate
from memopt.ir.graph import Loop, LoopForest
from memopt.ir.operations import AlignmentCheck, Block, Compute, Exit, Get, Jump, Literal, Load, Operand, Put, Store
from memopt.ir.reasons import Reason, Rejected

STEP_LIMIT = 4096  # blocks along one iteration


@dataclass
class Walk:
    """One iteration: what happened, and how it left the loop."""

    items: list[Item] = field(default_factory=list)
    state: State | None = None  # at the back edge
    exits: list[tuple[Formula, State, int, int]] = field(default_factory=list)  # leaving, state, items, target
    ended: bool = False  # the iteration always leaves
    guessing: bool = False  # header values are unknown: stay in the loop whatever the test says


def name_of(loop: Loop) -> str:
    return f"{loop.header:x}"


def counter_of(loop: Loop) -> str:
    return f"{LOOP_COUNTER}{loop.header:x}"


@dataclass(frozen=True, slots=True)
class Walker:
    """``lift`` gives the operations of a basic block, ``inner`` summarises a loop met inside an iteration: the state
    after it, what it did, where control goes."""

    forest: LoopForest
    lift: Callable[[int], Block]
    algebra: Algebra
    places: Places
    exits: Exits
    inner: Callable[[Loop, State], tuple[State, list[Item], int]]

    def walk(self, loop: Loop, state: State, guessing: bool = False) -> Walk:
        walk, state, address = Walk(guessing=guessing), dict(state), loop.header
        counter = counter_of(loop)
        children = {self.forest.loops[n].header: self.forest.loops[n] for n in loop.children}
        for _ in range(STEP_LIMIT):
            if address in children:
                state, items, address = self.inner(children[address], state)
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

    def _block(self, address: int, loop: Loop, state: State, walk: Walk, counter: str) -> int | None:
        """Run one basic block; the address of the next one, or None when the loop is always left here."""
        block = self.lift(address)
        temps: dict[int, Value] = {}
        last = block.operations[-1]
        for operation in block.operations:
            self.algebra.address = operation.address
            match operation:
                case Get():
                    temps[operation.result] = self.places.get(state, operation.location)
                case Put():
                    if operation.location != "rip":
                        state[operation.location] = self._operand(temps, operation.value)
                case Compute():
                    operands = tuple(self._operand(temps, o) for o in operation.operands)
                    temps[operation.result] = self.algebra.compute(operation.operator, operands, operation.width)
                case Load():
                    pointer = self.places.pointer(self._operand(temps, operation.pointer))
                    temps[operation.result] = self.places.load(state, walk.items, pointer, operation.width)
                case Store():
                    pointer = self.places.pointer(self._operand(temps, operation.pointer))
                    value = self._operand(temps, operation.value)
                    self.places.store(state, walk.items, pointer, value, operation.width)
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

    def _exit(self, operation: Exit, last: object, condition: Formula, loop: Loop, state: State, walk: Walk,
              counter: str) -> int | None:
        """The target when the branch is taken, None when the block goes on."""
        other = last.target if isinstance(last, Jump) and isinstance(last.target, int) else None
        taken_leaves, other_leaves = operation.target not in loop.blocks, other not in loop.blocks
        if taken_leaves == other_leaves or isinstance(condition, bool):
            if not self.exits.decide(condition):
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
        if not walk.guessing and not depends(leaving, counter):
            if self.exits.decide(leaving):
                walk.exits.append((True, dict(state), len(walk.items), leave))
                return leave
            return stay
        walk.exits.append((leaving, dict(state), len(walk.items), leave))
        return stay

    def _operand(self, temps: dict[int, Value], operand: Operand) -> Value:
        if isinstance(operand, Literal):
            return constant(operand.value, operand.width)
        return temps[operand.index]
