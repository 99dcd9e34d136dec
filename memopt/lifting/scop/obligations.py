"""Proof obligations of symbolic execution: each is proved, or becomes a guard, or the loop is rejected.

Example: a 32-bit counter is sign-extended in ``a[i]``. The obligation is that it does not wrap around in any iteration:
``2**31 - 1 - i >= 0``. With 0 <= i < R it is least in the last iteration, so the guard is ``2**31 - R >= 0``.

In: obligations, the ranges of the counters, the captured values. Out: one guard for each bound that is not proved, the
weakest where several differ in a constant only. Sound because a bound is the least value over all iterations
(memopt.lifting.values.bounds).

An extension in the last iteration needs no obligation when the exit test compares 32 bits: the original runs that
iteration, and the test that makes it the last one is right modulo 2**32.
"""

from __future__ import annotations

from collections.abc import Mapping

from memopt.ir.linear import Linear
from memopt.ir.reasons import Rejected
from memopt.ir.region import Relation
from memopt.ir.scop import TRIPS
from memopt.lifting.execution.assumptions import Assumptions
from memopt.lifting.execution.executor import OuterLoop
from memopt.lifting.execution.parameters import is_parameter
from memopt.lifting.values.algebra import Obligation
from memopt.lifting.values.bounds import Limits, sign_where
from memopt.lifting.values.requests import DeferExtension, SplitPaths

# The largest constant of a guard. (A negative number that is compared as unsigned has 2**64 added to it.)
_LARGEST = (1 << 63) - 1


def guards_for(outer: OuterLoop, obligations: tuple[Obligation, ...], sample: Mapping[str, int],
               assumptions: Assumptions) -> tuple[Relation, ...]:
    """Guards under which all ``obligations`` hold in all iterations of ``outer``; ``sample`` gives live-in values and
    R.

    For an obligation that is neither proved nor true at the captured values: raises SplitPaths if a branch was followed
    on it whose paths are not yet merged in general; DeferExtension if an extension needs it that is not yet deferred;
    else Rejected with its reason.
    """
    without_last = {**outer.ranges, outer.node.counter: outer.ranges[outer.node.counter] - 1}
    weakest: dict[tuple[tuple[str, int], ...], Relation] = {}
    unproved: list[Obligation] = []
    for obligation in obligations:
        spared = obligation.widening and outer.exit_width <= 32
        bound = sign_where(obligation.linear, without_last if spared else outer.ranges, obligation.given, sample)
        if bound.is_constant and bound.constant >= 0:
            continue
        if bound.is_constant or bound.evaluate(sample) < 0:
            unproved.append(obligation)
            continue
        bound = Linear(bound.terms, min(bound.constant, _LARGEST))
        known = weakest.get(bound.terms)
        if known is None or bound.constant < known.expression.constant:
            weakest[bound.terms] = Relation(bound, False, obligation.why)
    for obligation in unproved:
        if obligation.branch is not None and assumptions.split.get(obligation.branch, 0) < 2:
            raise SplitPaths(obligation.branch)
    widened = frozenset(o.address for o in unproved if o.widening) - assumptions.deferred
    if widened:
        raise DeferExtension(widened)
    for obligation in unproved:
        raise Rejected(obligation.reason, f"{obligation.why}, at {obligation.address:#x}")
    return tuple(weakest.values())


def limits(guards: tuple[Relation, ...]) -> Limits:
    """The bounds that ``guards`` put on R and parameters, for later proofs."""
    found = [g.expression.constant // -g.expression.coefficient(TRIPS) for g in guards
             if g.expression.symbols == {TRIPS} and g.expression.coefficient(TRIPS) < 0]
    facts = dict.fromkeys(g.expression for g in guards if g.expression.symbols - {TRIPS} and all(
        s == TRIPS or is_parameter(s) for s in g.expression.symbols))
    return Limits(min(found, default=None), tuple(facts))
