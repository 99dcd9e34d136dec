"""The result of executing one iteration symbolically: its items, its state at the back edge, the exits it may take.

Example: ``while (a[i] != 0) s += a[i++];`` gives an ``Iteration`` with one load, and one ``LoopExit`` with the state
at the test. An inner loop stands in the iteration of the loop around it as a ``LoopSummary``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.lifting.execution.assumptions import State
from memopt.lifting.values.loop_tree import Item, Raising, Read
from memopt.lifting.values.values import Formula, Value


@dataclass(frozen=True, slots=True)
class LoopExit:
    """An exit test of the loop, with what the iteration has done before it."""

    condition: Formula  # the loop is left where it holds
    state: State  # at the test
    items: int  # how many items of the iteration come before the test
    target: int  # the block behind the exit
    obligations: int  # how many entries of the algebra's list come before the test
    raising: tuple[Raising, ...]  # floating-point operations before the test


@dataclass(frozen=True, slots=True)
class LoopSummary:
    """The effect of an inner loop, as seen from the loop around it."""

    state: State  # behind the loop
    items: list[Item]  # its LoopNode; a peeled last iteration follows
    target: int  # the block where control goes
    raising: dict[Raising, None] = field(default_factory=dict)  # floating-point operations of the peeled iteration
    reads: tuple[Read, ...] = ()


@dataclass
class Iteration:
    """One iteration of the loop with ``counter``, or one path of a branch in it. Filled while it is executed."""

    counter: str
    items: list[Item] = field(default_factory=list)  # loads, stores, inner loops and guarded items, in order
    state: State | None = None  # at the back edge; None if that is never reached
    exits: list[LoopExit] = field(default_factory=list)
    ended: bool = False  # the iteration always leaves the loop
    obligations: int = 0  # length of the algebra's list of obligations after the iteration
    roots: list[Value] = field(default_factory=list)  # the iteration stays in the loop only if these are not negative
    guessing: bool = False  # header values are unknown symbols: exit tests on them do not decide anything
    raising: dict[Raising, None] = field(default_factory=dict)  # floating-point operations, in order
    reads: dict[Read, None] = field(default_factory=dict)  # cells at addresses that the loop does not change

    def read(self, reads: Iterable[Read], conditions: tuple[Linear, ...] = ()) -> None:
        """Note that the iteration reads these cells at this point if ``conditions`` are >= 0."""
        late = bool(self.exits or self.roots)
        self.reads |= {replace(r, conditions=(*conditions, *r.conditions), late=late or r.late): None for r in reads}
