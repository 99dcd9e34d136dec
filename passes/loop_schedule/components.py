"""Strongly connected components of the dependence graph between statements, in topological order.

Example: with ``S0 -> S1``, ``S1 -> S0`` and ``S1 -> S2`` the components are ``{S0, S1}`` and ``{S2}``.

Statements in different components can run in loops of their own (Allen and Kennedy, "Automatic translation of FORTRAN
programs to vector form", TOPLAS 9(4), 1987).
"""

from __future__ import annotations

from collections.abc import Iterable

from memopt.ir.scop import Statement
from memopt.polyhedral.dependence_pieces import DependencePiece


def components(statements: Iterable[Statement], conflicts: Iterable[DependencePiece]) -> tuple[tuple[Statement, ...],
                                                                                               ...]:
    """The components, each in textual order. Among components that may come next, the textually first one does."""
    ordered = sorted(statements, key=lambda s: s.position)
    reached = _reached([s.name for s in ordered], conflicts)
    groups: list[tuple[Statement, ...]] = []
    for statement in ordered:
        if not any(statement in g for g in groups):
            groups.append(tuple(s for s in ordered if s is statement or (
                s.name in reached[statement.name] and statement.name in reached[s.name])))
    result: list[tuple[Statement, ...]] = []
    while groups:
        first = next(g for g in groups if not any(g[0].name in reached[other[0].name] for other in groups
                                                  if other is not g))
        groups.remove(first)
        result.append(first)
    return tuple(result)


def _reached(names: list[str], conflicts: Iterable[DependencePiece]) -> dict[str, set[str]]:
    """The transitive closure: for each statement, those that must run after it."""
    reached: dict[str, set[str]] = {n: set() for n in names}
    for each in conflicts:
        reached[each.earlier].add(each.later)
    for middle in names:
        for name in names:
            if middle in reached[name]:
                reached[name] |= reached[middle]
    return reached
