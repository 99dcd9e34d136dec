"""How much of a nest's work falls into which iterations of its outermost loop.

Times of a few iterations are compared with each other and with whole runs; in triangles iterations differ in length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from memopt.ir.scop import TRIPS, Scop, Statement

UNEVEN = 0.05
_POINTS = 33  # outer iterations looked at: exact for constant and linear work, close for higher powers


@dataclass(frozen=True)
class Work:
    """Statement instances per outer iteration. ``values``: the live-in symbols and R."""

    scop: Scop
    values: Mapping[str, int]

    @cached_property
    def mean(self) -> float:
        """Instances in an average iteration; at least 1."""
        return self.per_iteration(0, self.values[TRIPS])

    @cached_property
    def even(self) -> bool:
        """Whether all iterations are about equally long."""
        first, last = self.per_iteration(0, 1), self.per_iteration(self.values[TRIPS] - 1, 1)
        return abs(first - last) <= UNEVEN * self.mean

    def per_iteration(self, first: int, count: int) -> float:
        """Mean instances of the iterations ``first`` .. ``first + count - 1``; at least 1, conditions not counted."""
        points = min(count, _POINTS)
        places = [first + (count - 1) * n / max(1, points - 1) for n in range(points)]
        total = sum(self._instances(s, at) for s in self.scop.statements for at in places)
        return max(1.0, total / max(1, points))

    def _instances(self, statement: Statement, at: float) -> float:
        """In outer iteration ``at``, each inner counter taken in the middle of its range."""
        outer, *inner = statement.dimensions
        known: dict[str, float] = {**self.values, outer.name: at}
        result = 1.0
        for dimension in inner:
            trips = max(0.0, dimension.trips.constant + sum(c * known[s] for s, c in dimension.trips.terms))
            known[dimension.name] = max(0.0, (trips - 1) / 2)
            result *= trips
        return result
