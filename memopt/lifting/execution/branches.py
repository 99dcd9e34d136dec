"""Branch conditions: the trip count that an exit test gives, the way a branch goes, and where a condition holds.

Example: ``k: ...; add rcx, 4; cmp rcx, rdx; jl k`` leaves the loop when ``rcx + 4*k + 4 - rdx >= 0``, where k counts
the iterations. That is ``first + slope*k >= 0`` with ``first = rcx + 4 - rdx`` and ``slope = 4``, so the back edge is
taken ``ceil(-first / 4)`` times. Where rcx and rdx are known numbers, the count is a number. Otherwise it is affine,
and 4 must divide every coefficient.

Three questions are answered: how often the back edge is taken (``back_edges``), which way a branch goes in every
iteration (``decide``, by the captured values), and in which iterations it goes one way (``ways``, as disjoint
conjunctions of affine conditions). The conditions that an answer relies on become obligations in the algebra.
"""

from __future__ import annotations

import math

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.lifting.execution.parameters import parametric
from memopt.lifting.values.algebra import LOOP_COUNTER, TRIAL, Algebra, fixable
from memopt.lifting.values.bounds import is_remainder, sufficient
from memopt.lifting.values.requests import SplitPaths
from memopt.lifting.values.values import Atom, Either, Formula, Not, Opaque, data, negate

MOST_WAYS = 32  # paths of one branch: every attempt executes each of them

Conditions = tuple[Linear, ...]  # each >= 0


@dataclass(frozen=True, slots=True)
class Branches:
    """Answers about formulas. ``algebra`` has the captured values and takes the obligations that answers rely on."""

    algebra: Algebra

    def back_edges(self, leaving: Formula, counter: str) -> Linear | None:
        """How often the back edge is taken: the first value of ``counter`` for which ``leaving`` holds.

        None where it is not affine, or not known yet in a trial. Raises Rejected if ``leaving`` is not a comparison
        that approaches its bound, or if the loop steps over its bound.
        """
        if leaving is True:
            return Linear.of(0)
        try:
            first, slope = self.crossing(leaving, counter)
        except Rejected:
            if self.algebra.trial:
                return None
            raise
        if not parametric(first) and (fixable(first) or self.algebra.exploring):
            first = self.algebra.specialised(first, symbolic=True)
        distance, step = (-first, slope) if slope > 0 else (first, -slope)  # left when step * counter reaches it
        if not distance.is_constant:
            return self._affine_turns(distance, step, is_equality(leaving))
        if is_equality(leaving):
            if distance.constant < 0 or distance.constant % step:
                raise Rejected(Reason.TRIP_COUNT, "a loop that ends on equality steps over its bound")
            return Linear.of(distance.constant // step)
        return Linear.of(max(0, -(-distance.constant // step)))

    def _affine_turns(self, distance: Linear, step: int, equality: bool) -> Linear | None:
        """``distance / step``, rounded up, where the distance to the bound is not a number.

        None if ``step`` does not divide a coefficient. A distance over live-in symbols only is then noted in
        ``algebra.distances``: the outermost loop requests equations that make it divisible.
        """
        distance = self._evened(distance, step)
        uneven = [s for s, c in distance.terms if c % step]
        if uneven or (equality and distance.constant % step):
            if self.algebra.trial:
                return None
            self._split_remainders()
            if any(s.startswith(LOOP_COUNTER) for s in uneven) or not uneven:
                raise Rejected(Reason.TRIP_COUNT, f"steps of {step} do not divide the way {distance} to the bound")
            self.algebra.distances.append((Linear(tuple(
                t for t in distance.terms if not t[0].startswith(LOOP_COUNTER))), step))
            return None
        turns = Linear(tuple((s, c // step) for s, c in distance.terms), -(-distance.constant // step))
        self.algebra.require(turns, "an inner loop starts before its bound")
        return turns

    def _evened(self, distance: Linear, step: int) -> Linear:
        """The same number, as a multiple of ``step`` if the path condition says that a remainder is zero.

        Example: a loop that is unrolled four times has ``n & 3`` iterations in front. On the path without them, the way
        n to the bound is ``n - n % 4``.
        """
        for zero in (-known for known in self.algebra.given if is_remainder(-known)):
            for symbol, factor in zero.terms:
                even = distance - zero * (distance.factor(symbol) // factor)
                if not any(c % step for _, c in even.terms):
                    return even
        return distance

    def _split_remainders(self) -> None:
        """Request both paths of a branch on a remainder, if one was decided. Raises SplitPaths.

        A loop that is unrolled four times may do ``n & 3`` iterations in front, under a branch on that number. The step
        divides the distance only if that branch is split.
        """
        for obligation in reversed(self.algebra.obligations):
            if obligation.branch is not None and any(map(is_remainder, (obligation.linear + 1, -obligation.linear))):
                raise SplitPaths(obligation.branch)

    def back_edges_at_sample(self, leaving: Formula, counter: str) -> float:
        """How often the back edge is taken at the captured values; ``math.inf`` if ``leaving`` never holds."""
        if leaving is True:
            return 0
        try:
            first, slope = self.crossing(leaving, counter)
        except Rejected:
            return 0 if not list(data(leaving)) and self._holds_at_sample(leaving) else math.inf
        distance = self.algebra.at_sample(first) * (-1 if slope > 0 else 1)
        if is_equality(leaving) and (distance < 0 or distance % abs(slope)):
            return math.inf
        return max(0, -(-distance // abs(slope)))

    def approaches(self, leaving: Formula, counter: str) -> bool:
        """Whether every iteration brings the exit condition ``leaving`` closer."""
        try:
            return leaving is True or bool(self.crossing(leaving, counter))
        except Rejected:
            return False

    def never(self, leaving: Formula) -> None:
        """Require that ``leaving`` holds in no iteration. Raises Rejected(TRIP_COUNT) if that is not affine."""
        match leaving:
            case Atom(linear, equal, needs):
                self._require_no_wrap(needs)
                side = linear if equal and self.algebra.at_sample(linear) > 0 else -linear
                self.algebra.require(side - 1, "another exit of the loop is not taken")
            case Not(Atom(linear, False, needs)):
                self._require_no_wrap(needs)
                self.algebra.require(linear, "another exit of the loop is not taken")
            case Either(left, right):
                self.never(left)
                self.never(right)
            case bool() if not leaving:
                pass
            case _:
                raise Rejected(Reason.TRIP_COUNT, "a loop has several exits, and one of them depends on data")

    def crossing(self, leaving: Formula, counter: str) -> tuple[Linear, int]:
        """``(first, slope)`` such that the loop is left as soon as ``first + slope * counter`` reaches 0.

        That is ``== 0`` if ``is_equality(leaving)``, else ``>= 0``, always with slope > 0. Raises
        Rejected(DATA_DEPENDENT_BRANCH) for loaded data, Rejected(TRIP_COUNT) for an expression that never reaches 0.
        """
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

    def decide(self, formula: Formula) -> bool:
        """Whether ``formula`` holds in every iteration, or in none: as at the captured values.

        Obligations demand that all iterations go the same way. Raises Rejected(DATA_DEPENDENT_BRANCH) for loaded data.
        """
        match formula:
            case bool():
                return formula
            case Opaque():
                raise Rejected(Reason.DATA_DEPENDENT_BRANCH, f"at {self.algebra.address:#x}")
            case Not(operand):
                return not self.decide(operand)
            case Either(left, right):
                for part in (left, right):
                    if self._holds_at_sample(part):
                        return self.decide(part)
                return self.decide(left) or self.decide(right)
            case Atom():
                return self._decide_atom(formula)

    def _decide_atom(self, atom: Atom) -> bool:
        self._require_no_wrap(atom.needs)
        number = self._nearest_at_sample(atom.linear)
        if atom.equal and number == 0:
            self._one_way(atom.linear)
            self._one_way(-atom.linear)
            return True
        if number >= 0:
            self._one_way(atom.linear - (1 if atom.equal else 0))
            return not atom.equal
        self._one_way(-atom.linear - 1)
        return False

    def _one_way(self, linear: Linear) -> None:
        address = self.algebra.address
        self.algebra.require(linear, f"the branch at {address:#x} goes one way", branch=address)

    def ways(self, formula: Formula, general: bool) -> list[Conditions]:
        """Where ``formula`` holds: a disjunction of disjoint conjunctions, each of conditions that are >= 0.

        A part over live-in symbols alone does not change and is decided. For ``a != b``, both sides of b are cases if
        ``general``. Otherwise a is required to stay on one side of b (``_side``), as a counter that runs up to b does.
        Raises Rejected(NO_PLAN) beyond MOST_WAYS cases, Rejected(DATA_DEPENDENT_BRANCH) for loaded data.
        """
        match formula:
            case bool():
                return [()] if formula else []
            case Opaque() | Not(Opaque()):
                raise Rejected(Reason.DATA_DEPENDENT_BRANCH, f"at {self.algebra.address:#x}")
            case Atom(linear) | Not(Atom(linear)) if fixable(linear):
                return [()] if self.decide(formula) else []
            case Either(left, right):
                return self.ways(left, general) + self._product(negate(left), right, general)
            case Not(Either(left, right)):
                return self._product(negate(left), negate(right), general)
            case Atom(linear, equal, needs):
                self._require_no_wrap(needs)
                if not equal:
                    return [(linear,)]
                return [(linear, -linear)] if general else [(-self._side(linear),)]
            case Not(Atom(linear, equal, needs)):
                self._require_no_wrap(needs)
                if not equal:
                    return [(-linear - 1,)]
                return [(linear - 1,), (-linear - 1,)] if general else [(self._side(linear) - 1,)]
        raise AssertionError(formula)

    def _product(self, left: Formula, right: Formula, general: bool) -> list[Conditions]:
        """The cases in which both formulas hold."""
        first, second = self.ways(left, general), self.ways(right, general)
        if len(first) * len(second) > MOST_WAYS:
            raise Rejected(Reason.NO_PLAN, f"the branch at {self.algebra.address:#x} splits into too many cases")
        return [a + b for a in first for b in second]

    def _require_no_wrap(self, needs: Conditions) -> None:
        for need in needs:
            self.algebra.require(need, "a comparison does not wrap around")

    def _nearest_at_sample(self, linear: Linear) -> int:
        """``linear`` at the captured values, or the nearest number that the enclosing conditions admit.

        These conditions (``algebra.given``) may not hold at the captured values if the branch is on a split path.
        """
        number = self.algebra.at_sample(linear)
        for known in self.algebra.given:
            if (over := linear - known).is_constant:
                number = max(number, over.constant)
            if (under := linear + known).is_constant:
                number = min(number, under.constant)
        return number

    def _side(self, linear: Linear) -> Linear:
        """``linear`` or ``-linear``: the one that is never negative.

        It follows from the enclosing conditions, or it is guessed from the captured values and required.
        """
        for side in (linear, -linear):
            if any((over := sufficient(side - known)).is_constant and over.constant >= 0
                   for known in (Linear(), *self.algebra.given)):
                return side
        number = self._nearest_at_sample(linear)
        rises = sum(c for s, c in linear.terms if s.startswith((LOOP_COUNTER, TRIAL))) >= 0
        if not self.algebra.reached:
            number = 0
        side = linear if number > 0 or (number == 0 and rises) else -linear
        self._one_way(side)
        return side

    def _holds_at_sample(self, formula: Formula) -> bool:
        """Whether ``formula`` holds at the captured values."""
        match formula:
            case bool():
                return formula
            case Not(operand):
                return not self._holds_at_sample(operand)
            case Either(left, right):
                return self._holds_at_sample(left) or self._holds_at_sample(right)
            case Atom(linear, equal, _):
                number = self.algebra.at_sample(linear)
                return number == 0 if equal else number >= 0
            case Opaque():
                raise Rejected(Reason.DATA_DEPENDENT_BRANCH, f"at {self.algebra.address:#x}")


def width_of(formula: Formula) -> int:
    """The bits of the operands that ``formula`` compares; 64 if it is not one comparison."""
    atom = formula.operand if isinstance(formula, Not) else formula
    return atom.width if isinstance(atom, Atom) else 64


def is_equality(formula: Formula) -> bool:
    """Whether ``formula`` is ``a == b`` or ``a != b``."""
    atom = formula.operand if isinstance(formula, Not) else formula
    return isinstance(atom, Atom) and atom.equal


def depends_on(formula: Formula, counter: str) -> bool:
    """Whether the truth of ``formula`` may change with ``counter``; loaded data always may."""
    match formula:
        case Atom(linear, _, _):
            return linear.coefficient(counter) != 0
        case Not(operand):
            return depends_on(operand, counter)
        case Either(left, right):
            return depends_on(left, counter) or depends_on(right, counter)
    return isinstance(formula, Opaque)
