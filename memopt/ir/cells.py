"""Cell sets: the exact cells that an access touches over an iteration domain.

Example: the load of ``a[i]`` in ``for (i = 0; i < R; i++) for (j = 0; j < i; j++) ... a[i][j] ...`` touches the words
``[8*i + rdi: i<R, j<i]``: none for i = 0, where the inner loop does not run.

A guard or a copy that reads memory for a version may read these cells and no others: what lies between or behind them
may be unmapped, or belong to another thread. As in a statement of a SCoP, the trip count R of the outermost loop stands
for the iterations H that the version runs, which the original runs, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.ir.scop import LIMIT, Dimension


@dataclass(frozen=True, slots=True)
class CellSet:
    """The cells at ``address``, in bytes, for all values of ``dimensions`` (outermost first) at which each of
    ``conditions`` is >= 0. All are Linear over live-in symbols, R and the dimensions around them."""

    address: Linear
    dimensions: tuple[Dimension, ...]
    conditions: tuple[Linear, ...] = ()

    @property
    def base(self) -> Linear:
        """The part of the address that does not depend on the dimensions. Raises Rejected(NON_AFFINE) where a floor
        division in it does."""
        return self.address.without(*(d.name for d in self.dimensions))

    @property
    def symbols(self) -> frozenset[str]:
        """The symbols in the address and the domain, without the dimensions."""
        return (self.address.symbols | self.domain_symbols) - {d.name for d in self.dimensions}

    @property
    def domain_symbols(self) -> frozenset[str]:
        """The symbols in trip counts and conditions, without the dimensions."""
        found = frozenset[str]().union(*(e.symbols for e in (*(d.trips for d in self.dimensions), *self.conditions)))
        return found - {d.name for d in self.dimensions}

    def domain(self) -> Iterator[Linear]:
        """Expressions that are >= 0 at the points of the domain and only there, with H in place of the outermost trip
        count."""
        for number, dimension in enumerate(self.dimensions):
            trips = dimension.trips if number else Linear.symbol(LIMIT)
            yield Linear.symbol(dimension.name)
            yield trips - 1 - Linear.symbol(dimension.name)
        yield from self.conditions

    def addresses(self, values: Mapping[str, int]) -> frozenset[int]:
        """The addresses for these values of all symbols and of H."""
        later = [self._used_from(level) for level in range(len(self.dimensions) + 1)]
        points = {tuple[int, ...]()}  # values of the dimensions so far that matter later
        names: tuple[str, ...] = ()
        for number, dimension in enumerate(self.dimensions):
            inside = (*names, dimension.name)
            kept = tuple(n for n in inside if n in later[number + 1])
            found: set[tuple[int, ...]] = set()
            for point in points:
                known = {**values, **dict(zip(names, point, strict=True))}
                trips = dimension.trips.evaluate(known) if number else values[LIMIT]
                turns = range(trips) if dimension.name in kept else range(min(trips, 1))
                found |= {tuple({**known, dimension.name: n}[k] for k in kept) for n in turns}
            points, names = found, kept
        where = [{**values, **dict(zip(names, point, strict=True))} for point in points]
        return frozenset(self.address.evaluate(w) for w in where if all(c.evaluate(w) >= 0 for c in self.conditions))

    def _used_from(self, level: int) -> frozenset[str]:
        """Symbols in the trip counts from dimension ``level`` on, in the conditions and the address."""
        parts = (*(d.trips for d in self.dimensions[level:]), *self.conditions, self.address)
        return frozenset[str]().union(*(p.symbols for p in parts))

    def __str__(self) -> str:
        return f"[{self.address}: {', '.join((*map(str, self.dimensions), *(f'{c} >= 0' for c in self.conditions)))}]"
