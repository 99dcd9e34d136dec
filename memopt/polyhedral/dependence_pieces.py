"""Memory-based dependences as a list of convex pieces, for schedulers that ask about one hyperplane at a time.

Example: ``for (i) a[i+1] = a[i]``. Instance i writes the cell that the later instance i' = i + 1 reads; the piece is
``{ (i, i') : i' = i + 1, 0 <= i, i' < R }``.

In: a SCoP. Out: ``DependencePiece``s. A piece holds pairs of instances that access one cell, one of them writing, the
earlier instance first, which agree in a given number of shared loops. The pieces together are exactly the
dependences (memopt.polyhedral.dependences gives the same relation as one isl map).
In ``pairs`` the counters of the earlier instance have their own names, those of the later one a prime.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from memopt.ir.frozen import dataclass
from memopt.ir.identity import by_identity
from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.scop import Access, Scop, Statement
from memopt.polyhedral.isl import Polyhedron

MOST_CONFLICTS = 4000


@dataclass(frozen=True, slots=True, eq=False)
class DependencePiece:
    """A convex set of pairs of instances that depend on each other."""

    earlier: str  # the statement whose instance comes first
    later: str
    first: Access  # the access of ``earlier``; both access the same cell
    second: Access
    pairs: Polyhedron

    def distance(self, expressions: Mapping[str, Linear]) -> Linear:
        """The dependence distance: by how much an expression grows from the earlier instance to the later one.

        ``expressions``: one for each statement, by its name.
        """
        return self.later_instance(expressions[self.later]) - expressions[self.earlier]

    def later_instance(self, expression: Linear) -> Linear:
        """``expression``, over counters of the later statement, in the variables of ``pairs``."""
        terms = {s + "'" if s + "'" in self.pairs.variables else s: c for s, c in expression.terms}
        return Linear.build(terms, expression.constant)

    def where(self, *, equal: tuple[Linear, ...] = (), nonnegative: tuple[Linear, ...] = ()) -> DependencePiece:
        """The pairs for which every one of ``equal`` is 0 and every one of ``nonnegative`` is >= 0."""
        return replace(self, pairs=self.pairs.where(equal=equal, nonnegative=nonnegative))

    def __str__(self) -> str:
        return f"{self.earlier} -> {self.later} on {self.first.array}: {self.pairs}"


def dependence_pieces(scop: Scop, facts: tuple[Linear, ...] = ()) -> tuple[DependencePiece, ...]:
    """All pieces that are not empty where every one of ``facts``, over symbols alone, is >= 0.

    Raises ``Rejected(NO_SCHEDULE)`` when there are more than 4000.
    """
    found: list[DependencePiece] = []
    for earlier in scop.statements:
        for later in scop.statements:
            found += between(earlier, later, facts)
            if len(found) > MOST_CONFLICTS:
                raise Rejected(Reason.NO_SCHEDULE, f"the loop has more than {MOST_CONFLICTS} dependences")
    return tuple(found)


def shared_loops(first: Statement, second: Statement) -> int:
    """The number of loops that surround both statements: those at the same textual positions."""
    most = min(len(first.dimensions), len(second.dimensions))
    return next((n for n in range(most) if first.position[n] != second.position[n]), most)


@by_identity
def between(earlier: Statement, later: Statement, facts: tuple[Linear, ...] = ()) -> tuple[DependencePiece, ...]:
    """The pieces in which an instance of ``earlier`` comes before one of ``later``; ``facts`` as above."""
    meeting = tuple(_meeting(earlier, later))
    if not meeting:
        return ()
    found: list[DependencePiece] = []
    ordered = tuple(_ordered(earlier, later, facts))
    for first, second, cells in meeting:
        for each in ordered:
            met = each.where(equal=cells)
            if not met.is_empty:
                found.append(DependencePiece(earlier.name, later.name, first, second, met))
    return tuple(found)


def _meeting(earlier: Statement, later: Statement) -> Iterator[tuple[Access, Access, list[Linear]]]:
    """Pairs of accesses to one array, one of them writing, with the expressions that are 0 where both are to one cell.

    Pairs that never are to one cell are left out, as those of unrolled copies of a statement.
    """
    for first in dict.fromkeys((earlier.write, *earlier.reads)):
        for second in dict.fromkeys((later.write, *later.reads)):
            if first.array == second.array and (first == earlier.write or second == later.write):
                cells = [_primed(b, later) - a for a, b in zip(first.subscripts, second.subscripts, strict=True)]
                if not any(c.is_constant and c.constant for c in cells):
                    yield first, second, cells


def _ordered(earlier: Statement, later: Statement, facts: tuple[Linear, ...]) -> Iterator[Polyhedron]:
    """All pairs of instances, the earlier one first, in one polyhedron for each number of outer loops in which the two
    agree (the level that carries the dependence)."""
    common = shared_loops(earlier, later)
    agree = [_primed(Linear.symbol(b.name), later) - Linear.symbol(a.name)
             for a, b in zip(earlier.dimensions[:common], later.dimensions[:common], strict=True)]
    pairs = _all_pairs(earlier, later, facts)
    for level, ahead in enumerate(agree):
        yield pairs.where(equal=agree[:level], nonnegative=[ahead - 1])
    if earlier.position[common] < later.position[common]:
        yield pairs.where(equal=agree)


def _all_pairs(earlier: Statement, later: Statement, facts: tuple[Linear, ...]) -> Polyhedron:
    names = tuple(d.name for d in earlier.dimensions) + tuple(d.name + "'" for d in later.dimensions)
    bounds = [*_bounds(earlier), *(_primed(b, later) for b in _bounds(later))]
    cells = [s for x in (earlier, later) for a in (x.write, *x.reads) for s in a.subscripts]
    symbols = {s for e in (*bounds, *cells) for s in e.symbols}
    symbols -= {d.name for d in (*earlier.dimensions, *later.dimensions)} | set(names)
    known = [f for f in facts if f.symbols <= symbols]
    return Polyhedron.build(names, tuple(sorted(symbols)), nonnegative=[*bounds, *known])


def _bounds(statement: Statement) -> Iterator[Linear]:
    """The constraints (>= 0) of the iteration domain."""
    for dimension in statement.dimensions:
        yield Linear.symbol(dimension.name)
        yield dimension.trips - Linear.symbol(dimension.name) - 1
    yield from statement.conditions


def _primed(expression: Linear, statement: Statement) -> Linear:
    return expression.substitute({d.name: Linear.symbol(d.name + "'") for d in statement.dimensions})
