"""Exits that are taken for a negative operand of a square root: the version detects them by the invalid flag.

Example: with errno, compilers make of ``y[i] = sqrt(x)`` (xmm2 is 0)::

    ucomisd xmm2, xmm0; ja cold; sqrtsd xmm0, xmm0; movsd [rdi], xmm0      ; cold: call sqrt

The version has no such branch. It computes the root in every iteration, and for a negative operand that raises the
invalid flag. When the flag is up, the version rolls back and the original runs all iterations (memopt.cfg.cold_calls).

So this module makes sure that every iteration that stays in the loop does compute the root of the tested value, for
something that is stored. Otherwise the version might leave the root out, and the branch is rejected
(DATA_DEPENDENT_BRANCH).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from memopt.ir.reasons import Reason, Rejected
from memopt.lifting.values.bits import base_and_offset, extract
from memopt.lifting.values.canonical import canonical, canonical_nest
from memopt.lifting.values.loop_tree import Guarded, Item, LoopNode, StoreEvent, loop_name, loops_of
from memopt.lifting.values.values import Carried, Final, Formula, Node, Value, data, within


def invalid_root(address: int) -> Rejected:
    """The error for an exit on a negative number whose square root the loop does not store."""
    return Rejected(Reason.DATA_DEPENDENT_BRANCH,
                    f"at {address:#x}, on a negative number whose square root is not stored")


def computed(root: Value, values: Iterable[Value]) -> bool:
    """Whether one of ``values`` contains the square root of ``root``. Precondition: all are in canonical form."""
    wanted = Node("fsqrt", (root,), root.width)
    return any(wanted in within(value) for value in values)


def covered_by_root(leaving: Formula, numeric: bool) -> Iterator[Value]:
    """The comparisons in the exit condition ``leaving``, and their operands, whose flags the square root raises anyway.

    A quiet comparison of a number, perhaps widened, with zero raises nothing that its root does not. Nor does a
    signalling comparison, if the number is not a NaN (``numeric``).
    """
    for look in (x for value in data(leaving) for x in within(value) if isinstance(x, Node)):
        if look.operator == "fqcompare" or (numeric and look.operator == "fcompare"):
            yield look
            yield from look.operands


def roots_not_stored(roots: Iterable[Value], items: Iterable[Item]) -> list[Value]:
    """The values in ``roots`` whose square root no store in ``items``, those of the same iteration, contains."""
    stored = [canonical(i.value) for i in items if isinstance(i, StoreEvent)]
    return [root for root in roots if not computed(root, stored)]


def check_roots(nest: LoopNode) -> None:
    """Check that each loop in ``nest`` computes its ``roots`` for something that is stored, in every iteration.

    The loop stores it itself, or adds it to a sum that the loop around it stores.
    Raises Rejected(DATA_DEPENDENT_BRANCH) otherwise.
    """
    if any(loop.roots for loop in loops_of((nest,))):
        nest = canonical_nest(nest)
        _check(nest, _stored(nest))


def _check(loop: LoopNode, kept: list[Value]) -> None:
    """Checks ``loop`` and its inner loops. ``kept``: values of each iteration that end up in memory, so that the
    version computes them.
    """
    if not all(computed(root, kept) for root in loop.roots):
        raise invalid_root(loop.address)
    _check_inside(loop.items, kept)


def _check_inside(items: tuple[Item, ...], kept: list[Value]) -> None:
    for item in items:
        match item:
            case LoopNode():
                _check(item, _stored(item) + _summed(item, kept))
            case Guarded():  # registers that it sets may be unused, so sums do not count
                _check_inside(item.items, [])


def _stored(loop: LoopNode) -> list[Value]:
    return [item.value for item in loop.items if isinstance(item, StoreEvent)]


def _summed(loop: LoopNode, around: list[Value]) -> list[Value]:
    """The terms that ``loop`` adds in each iteration to sums that the values ``around``, of the loop around it,
    contain.
    """
    finals = dict(loop.finals)
    used = {value for whole in around for value in within(whole)}
    found = []
    for carried in loop.carried:
        place, width = carried.location, carried.entry.width
        last = Final(loop_name(loop), place, width)
        for value in used:
            base, low = base_and_offset(value)
            if base == last and finals.get(place) == carried.following:
                following = extract(carried.following, low, value.width)
                if Carried(loop_name(loop), place, width) in within(following):
                    found.append(following)
    return found
