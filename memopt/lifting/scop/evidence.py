"""Evidence: answers the questions that proofs ask about the captured state, and collects the guards that the answers
rest on.

Example: rerolling takes ``s += a[0]; s += b[1];`` for two iterations of one loop if the pointers a and b are equal.
They are at the captured values: ``always`` says yes, and the next attempt at lifting assumes ``a == b``.

In: the assumptions of the attempt, the lifted outer loop, the captured values. Out: guards, live-in lanes and cells
that only guards read, obligations, and requests for the next attempt. Sound because no answer is taken for granted:
each becomes a guard that is checked at every entry, or an equation under which everything is lifted again.

This is the only object of the room that changes: all modules add their guards here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Cell, Disjoint, Guard, Interval, Lane, LiveIn, Relation
from memopt.ir.scop import TRIPS, Scalar
from memopt.lifting.execution.assumptions import BASES, Assumptions
from memopt.lifting.execution.entry_invariants import EntryInvariants
from memopt.lifting.execution.executor import OuterLoop
from memopt.lifting.scop.dereferenceable import Dereferenceable
from memopt.lifting.scop.obligations import guards_for
from memopt.lifting.values.algebra import Obligation
from memopt.lifting.values.requests import AssumeAll, AssumeEqual

_Found = TypeVar("_Found")


@dataclass(slots=True)
class Evidence:
    """The captured state as proofs see it (memopt.lifting.reroll.proofs.CapturedState), with what they rely on.

    The fields without a default are given; the others are collected.
    """

    assumptions: Assumptions
    outer: OuterLoop
    invariants: EntryInvariants
    sample: dict[str, int]  # captured value of every live-in symbol, of R and of private arrays
    dereferenceable: Dereferenceable
    proofs: tuple[Relation, ...]  # guards for the obligations of symbolic execution
    demands: list[Obligation] = field(default_factory=list)  # obligations beyond those of symbolic execution
    guards: list[Guard] = field(default_factory=list)
    lanes: dict[str, LiveIn] = field(default_factory=dict)  # live-in values that are no symbols of the lift, by name
    constants: dict[str, Interval] = field(default_factory=dict)  # cells that only guards read, by their live-in name
    reordered: bool = False  # operands of sums and products were brought into one order: no NaN may be read
    asked: dict[Linear, AssumeEqual] = field(default_factory=dict)  # equations under which ``always`` would be right

    @staticmethod
    def of(assumptions: Assumptions, outer: OuterLoop, invariants: EntryInvariants) -> Evidence:
        """Raises Rejected(TOO_SHORT or TRIP_COUNT) for fewer than two iterations, or no whole number of them, at the
        captured values, and what ``guards_for`` raises for obligations that do not hold."""
        sample = assumptions.samples()
        trips, rest = divmod(outer.numerator.evaluate(sample), outer.divisor)
        if rest or trips < 2:
            raise Rejected(Reason.TRIP_COUNT if rest else Reason.TOO_SHORT, "at the captured values")
        sample[TRIPS] = trips
        reads = Dereferenceable(outer.reads, outer.node.counter, assumptions.solved, sample)
        return Evidence(assumptions, outer, invariants, sample, reads,
                        guards_for(outer, outer.obligations, sample, assumptions))

    # -- questions ----------------------------------------------------------------------------------------------

    def always(self, distance: Linear, expected: int) -> bool:
        """Whether ``distance``, over live-in symbols and R, is ``expected`` at every entry.

        Where it is no constant, but the same at every entry, the captured value answers, and the equation that makes
        it always so is noted in ``asked``: the answer only counts after ``answered`` has asked for these equations.
        """
        if distance.is_constant:
            return distance.constant == expected
        related = self.assumptions.trips is not None
        entered = distance if related or self.outer.divisor > 1 else distance.substitute({TRIPS: self.outer.numerator})
        if (TRIPS in entered.symbols and not related) or self.invariants.step(entered):
            return False
        if entered.is_constant:
            return entered.constant == expected
        moving = self.invariants.moves(entered) if entered != distance or related else frozenset[str]()
        self.asked[entered] = AssumeEqual(entered, moving)
        return entered.evaluate(self.sample) == expected

    def answered(self, found: Callable[[], _Found]) -> _Found:
        """The result of ``found``, which asks ``always``. Raises AssumeAll with all equations that its answers rested
        on, if there are any; then this attempt is over, whatever ``found`` made of the answers."""
        try:
            made = found()
        except Rejected:
            if not self.asked:
                raise
        if self.asked:
            raise AssumeAll(tuple(self.asked.values()))
        return made

    def alike(self, one: Scalar, two: Scalar) -> bool:
        """Whether two live-in operands hold the same bits in the captured state."""
        bits = [self.assumptions.vectors.get(s.register, b"")[s.offset:][:s.element.size] for s in (one, two)]
        return bits[0] == bits[1] != b""

    def bits(self, cell: tuple[Linear, int]) -> int | None:
        """The captured contents of the cell (address, bytes); None where no guard could read it: it has another size
        than 4 or 8 bytes, its address is no register plus a number, or the original might not read it."""
        address, size = cell
        base = address.terms[0][0] if address.terms else ""
        if size not in (4, 8) or len(address.terms) > 1 or any(c != 1 for _, c in address.terms) or (
                base and (base not in BASES or base in self.outer.opaque)):
            return None
        if base and base != "rsp" and not self.dereferenceable.always(address, size):
            return None
        if not base and next(self.dereferenceable.of(address, size), None) is None:
            return None
        return self.assumptions.peek(address.evaluate(self.sample), 8 * size)

    # -- what the region relies on ------------------------------------------------------------------------------

    def equate(self, one: Scalar, two: Scalar) -> None:
        """Guard that two live-in operands hold the same bits."""
        first, second = (self.lane(s) for s in (one, two))
        self.guards.append(Relation(first - second, True, "copies of a loop use equal numbers"))

    def same_cells(self, one: tuple[Linear, int], two: tuple[Linear, int]) -> None:
        """Guard that two cells hold the same bits at entry. Both are kept apart from all that the version writes."""
        first, second = map(self._constant, (one, two))
        self.guards.append(Relation(second - first, True, "a constant is the same in all lanes"))

    def disjoint(self, one: Interval, two: Interval, why: str) -> None:
        """Guard that two intervals of bytes share none, unless that is proved. Raises Rejected(OVERLAP) where they do
        at the captured values."""
        gaps = (two.low - one.high, one.low - two.high)
        if any(g.is_constant and g.constant >= 0 for g in gaps):
            return
        if all(g.evaluate(self.sample) < 0 for g in gaps):
            raise Rejected(Reason.OVERLAP, why)
        self.guards.append(Disjoint(one, two, why))

    def lane(self, scalar: Scalar) -> Linear:
        """The symbol of a live-in part of a vector register, which is a live-in value of the region from now on."""
        lane = Lane(scalar.register, scalar.offset, scalar.element.size)
        self.lanes[str(lane)] = LiveIn(str(lane), lane, scalar.element.size)
        return Linear.symbol(str(lane))

    def _constant(self, cell: tuple[Linear, int]) -> Linear:
        address, size = cell
        location = Cell(address.terms[0][0] if address.terms else "", address.constant, size)
        self.lanes[str(location)] = LiveIn(str(location), location, size)
        self.constants[str(location)] = Interval(address, address + size)
        return Linear.symbol(str(location))
