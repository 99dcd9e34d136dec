"""Branches that leave a loop for a negative operand of a square root: staying must compute that root.

It raises the invalid flag, by which a version knows that the branch would have been taken (memopt.cfg.cold_calls).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from memopt.ir.reasons import Reason, Rejected
from memopt.lifting.values.bits import base_and_offset, extract
from memopt.lifting.values.canonical import canonical, canonical_nest
from memopt.lifting.values.loop_tree import Guarded, Item, LoopNode, StoreEvent, loop_name, loops_of
from memopt.lifting.values.values import Carried, Final, Formula, Node, Value, data, within


def invalid_root(address: int) -> Rejected:
    return Rejected(Reason.DATA_DEPENDENT_BRANCH, f"at {address:#x}, for a negative root")


def computed(root: Value, values: Iterable[Value]) -> bool:
    """Whether the square root of ``root`` is part of one of ``values``, all in canonical form."""
    wanted = Node("fsqrt", (root,), root.width)
    return any(wanted in within(value) for value in values)


def answered(leaving: Formula, numeric: bool) -> Iterator[Value]:
    """What the branch that leaves where ``leaving`` holds need not raise, its root being computed: a quiet look at the
    sign of a number, perhaps widened, raises nothing that the root does not, nor does any look at one that is no NaN
    (``numeric``)."""
    for look in (x for value in data(leaving) for x in within(value) if isinstance(x, Node)):
        if look.operator == "fqcompare" or (numeric and look.operator == "fcompare"):
            yield look
            yield from look.operands


def elsewhere(roots: Iterable[Value], items: Iterable[Item]) -> list[Value]:
    """Those ``roots`` whose square root is in nothing that the same iteration, which does ``items``, stores."""
    stored = [canonical(i.value) for i in items if isinstance(i, StoreEvent)]
    return [root for root in roots if not computed(root, stored)]


def check_roots(nest: LoopNode) -> None:
    """Each iteration of a loop of ``nest`` must compute its ``roots`` for something that is stored: by itself, or by
    the loop around it at the end of a sum, to which the root contributes in every iteration."""
    if any(loop.roots for loop in loops_of((nest,))):
        nest = canonical_nest(nest)
        _check(nest, _stored(nest))


def _check(loop: LoopNode, kept: list[Value]) -> None:
    """``kept``: what each iteration of ``loop`` computes and nothing may leave out."""
    if not all(computed(root, kept) for root in loop.roots):
        raise invalid_root(loop.address)
    _check_inside(loop.items, kept)


def _check_inside(items: tuple[Item, ...], kept: list[Value]) -> None:
    for item in items:
        match item:
            case LoopNode():
                _check(item, _stored(item) + _summed(item, kept))
            case Guarded():  # what it leaves in registers may not be asked for
                _check_inside(item.items, [])


def _stored(loop: LoopNode) -> list[Value]:
    return [item.value for item in loop.items if isinstance(item, StoreEvent)]


def _summed(loop: LoopNode, around: list[Value]) -> list[Value]:
    """What ``loop`` adds to sums that ``around``, values of the loop around it, are made of."""
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
