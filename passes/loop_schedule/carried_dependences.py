"""What a date does to dependences: which it carries, which it leaves, which it breaks.

The scheduler builds dates one after the other; after each, only the pairs of instances that it leaves at the same
date matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from memopt.ir.linear import Linear
from memopt.polyhedral.dependence_pieces import DependencePiece

DependencePieces = tuple[DependencePiece, ...]


def carry(conflicts: Iterable[DependencePiece], date: Mapping[str, Linear]) -> DependencePieces | None:
    """The pairs that ``date`` (an expression for every statement) leaves at the same time; None when it turns one
    round."""
    left = []
    for each in conflicts:
        distance = each.distance(date)
        if distance.is_constant:
            if distance.constant < 0:
                return None
            left += [each] if distance.constant == 0 else []
            continue
        least = each.pairs.least(distance)
        if least is None or least < 0:
            return None
        if least == 0:
            left.append(each if each.pairs.most(distance) == 0 else each.where(equal=(distance,)))
    return tuple(left)


def keeps(conflicts: Iterable[DependencePiece], date: Mapping[str, Linear]) -> bool:
    """Whether no pair goes back along ``date``: then its quotient by any number does not turn one round either."""
    return all((least := each.pairs.least(each.distance(date))) is not None and least >= 0 for each in conflicts)


def equal(conflicts: Iterable[DependencePiece], date: Mapping[str, Linear]) -> bool:
    """Whether every pair lies at one date."""
    for each in conflicts:
        distance = each.distance(date)
        if each.pairs.least(distance) != 0 or each.pairs.most(distance) != 0:
            return False
    return True


def within(conflicts: Iterable[DependencePiece], names: Iterable[str]) -> DependencePieces:
    """Those between statements of ``names``."""
    chosen = set(names)
    return tuple(c for c in conflicts if c.earlier in chosen and c.later in chosen)
