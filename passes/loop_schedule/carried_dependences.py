"""The effect of one date (one dimension of the schedule) on dependences: it carries, leaves or violates them.

Example: ``A[i][j] = A[i-1][j]``. The date i carries the dependence (distance 1), the date j leaves it (distance 0), the
date -i violates it (distance -1).

A scheduler adds one date after the other. After each, only the dependences that it leaves matter: the pairs of
instances with the same date.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from memopt.ir.linear import Linear
from memopt.polyhedral.dependence_pieces import DependencePiece

DependencePieces = tuple[DependencePiece, ...]


def carry(conflicts: Iterable[DependencePiece], date: Mapping[str, Linear]) -> DependencePieces | None:
    """The dependences that one more date leaves (distance 0); those with a larger distance are carried. None when
    the date violates one (a negative distance, or one without a lower bound). ``date``: an expression for every
    statement."""
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
    """Whether no dependence has a negative distance along ``date``. Then tiles of it are legal too: ``floor(date / n)``
    violates none for any n."""
    return all((least := each.pairs.least(each.distance(date))) is not None and least >= 0 for each in conflicts)


def equal(conflicts: Iterable[DependencePiece], date: Mapping[str, Linear]) -> bool:
    """Whether every dependence has distance 0 along ``date``: none goes along it, so it is parallel."""
    for each in conflicts:
        distance = each.distance(date)
        if each.pairs.least(distance) != 0 or each.pairs.most(distance) != 0:
            return False
    return True


def within(conflicts: Iterable[DependencePiece], names: Iterable[str]) -> DependencePieces:
    """The dependences between statements of ``names``."""
    chosen = set(names)
    return tuple(c for c in conflicts if c.earlier in chosen and c.later in chosen)
