"""Work per outer iteration: how many statement instances fall into which iterations of the outermost loop.

Example: in ``for (i < R) for (j < i) S`` iteration i has i instances, on average (R-1)/2.

In: the SCoP, the values of live-ins and R. Out: instances per iteration. With them times of a few iterations can be
compared with each other and with whole runs, although iterations differ in length (triangles).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from memopt.ir.frozen import dataclass
from memopt.ir.scop import TRIPS, Scop, Statement

UNEVEN = 0.05  # of the mean: a larger difference between first and last iteration makes a nest uneven
_POINTS = 33  # outer iterations that are sampled: exact for constant and linear work, close for higher powers


@dataclass(frozen=True)
class Work:
    """Statement instances per outer iteration. ``values``: the values of the live-in symbols and of R."""

    scop: Scop
    values: Mapping[str, int]

    @cached_property
    def mean(self) -> float:
        """Instances of an average iteration; at least 1."""
        return self.per_iteration(0, self.values[TRIPS])

    @cached_property
    def even(self) -> bool:
        """Whether the first and the last iteration have about equally many instances (within ``UNEVEN``)."""
        first, last = self.per_iteration(0, 1), self.per_iteration(self.values[TRIPS] - 1, 1)
        return abs(first - last) <= UNEVEN * self.mean

    def per_iteration(self, first: int, count: int) -> float:
        """Mean instances of the iterations ``first`` .. ``first + count - 1``; at least 1.

        Conditions of statements are ignored.
        """
        points = min(count, _POINTS)
        places = [first + (count - 1) * n / max(1, points - 1) for n in range(points)]
        total = sum(self._instances(s, at) for s in self.scop.statements for at in places)
        return max(1.0, total / max(1, points))

    def _instances(self, statement: Statement, at: float) -> float:
        """Instances of ``statement`` in outer iteration ``at``, with each inner counter in the middle of its range."""
        outer, *inner = statement.dimensions
        known: dict[str, float] = {**self.values, outer.name: at}
        result = 1.0
        for dimension in inner:
            trips = max(0.0, dimension.trips.constant + sum(c * known[s] for s, c in dimension.trips.terms))
            known[dimension.name] = max(0.0, (trips - 1) / 2)
            result *= trips
        return result
