"""Delinearisation: from byte addresses back to arrays with subscripts.

Accesses over the same live-in symbols whose footprints touch belong to one array. Its strides are the coefficients
of the loop counters; every inner subscript is proved to stay below the next outer stride, so that two cells are
equal exactly when all their subscripts are. A counter that walks along a diagonal moves two subscripts, so several
splits into strides and digits are tried. Where no proof succeeds the array is one-dimensional, which is always right
and only less precise. (Compare Grosser et al., Optimistic delinearization of parametrically sized arrays,
ICS 2015: here sizes are known numbers.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Footprint, Interval, Relation
from memopt.ir.scop import TRIPS, Access, Array, ElementType
from memopt.lifting.execution.parameters import is_parameter
from memopt.lifting.values.bounds import least_where, proved

MOST_FIRST = 3  # coefficients that are tried as the outermost stride

Digits = Callable[[int, tuple[int, ...]], Iterator[int]]
"""A coefficient as a sum of multiples of the strides, of which the last, the element's size, divides it."""


@dataclass(frozen=True, slots=True)
class ByteAccess:
    """One access of a statement: ``address`` over live-in symbols and dimension names, in bytes."""

    address: Linear
    trips: tuple[tuple[str, Linear], ...]  # dimension -> trip count, over outer dimensions, live-in symbols and R
    element: ElementType
    written: bool
    conditions: tuple[Linear, ...] = ()  # all >= 0 where the access is made

    def base(self) -> Linear:
        """The part that depends neither on the loop counters nor on R or parameters."""
        return self.address.without(TRIPS, *self.parameters, *(d for d, _ in self.trips))

    @property
    def parameters(self) -> tuple[str, ...]:
        """Those of the address (memopt.lifting.execution.parameters)."""
        return tuple(s for s, _ in self.address.terms if is_parameter(s))

    def extent(self, sample: Mapping[str, int]) -> tuple[Linear, Linear]:
        """The bytes touched in all iterations lie in [low, high) from the base's symbols on: Linear over R and
        parameters."""
        low, high = self.bounds(self.address - Linear(self.base().terms), sample, numbers=False)
        return low, high + self.element.size

    def bounds(self, linear: Linear, sample: Mapping[str, int], numbers: bool = True) -> tuple[Linear, Linear]:
        """Smallest and largest value over the iterations that make the access, Linear over R and parameters;
        ``numbers`` where they can be had, though others may be tighter."""
        ranges = {d: t - 1 for d, t in self.trips}
        conditions = (*self.conditions, *(r for r in ranges.values() if not r.is_constant))
        return (least_where(linear, ranges, conditions, sample, numbers),
                -least_where(-linear, ranges, conditions, sample, numbers))


@dataclass(frozen=True, slots=True)
class Hull:
    """The bytes of several accesses, from their common base on: bounds of each, over R and parameters, and of those
    the extreme ones."""

    lows: frozenset[Linear]
    highs: frozenset[Linear]
    low: Linear
    high: Linear

    @staticmethod
    def of(members: Iterable[ByteAccess], sample: Mapping[str, int], tight: Mapping[str, int] | None = None) -> Hull:
        """Extreme at ``sample``, of bounds that are tight at ``tight``, there too unless told."""
        lows, highs = map(frozenset, zip(*(m.extent(tight or sample) for m in members), strict=True))
        # Rows that are counted from the end: their bounds follow R in both directions, the extreme one is guarded.
        # So is that of bounds that follow parameters, and one that is extreme for smaller R too.
        return Hull(lows, highs, min(lows, key=lambda b: (b.evaluate(sample), -b.coefficient(TRIPS))),
                    max(highs, key=lambda b: (b.evaluate(sample), -b.coefficient(TRIPS))))

    @property
    def bounds(self) -> frozenset[Linear]:
        return self.lows | self.highs

    @property
    def needs(self) -> list[Linear]:
        """All >= 0, or else low and high are no bounds."""
        return [b - self.low for b in self.lows] + [self.high - b for b in self.highs]

    def reaches(self, sample: Mapping[str, int]) -> tuple[int, int]:
        return self.low.evaluate(sample), self.high.evaluate(sample)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Accesses that may share cells, and the bytes they cover together."""

    members: tuple[ByteAccess, ...]
    symbols: Linear  # live-in part of the base, without its constant
    low: Linear  # over symbols, R and parameters
    high: Linear
    needs: tuple[Linear, ...] = ()  # all >= 0, or else low and high are no bounds

    @property
    def written(self) -> bool:
        return any(m.written for m in self.members)

    @property
    def interval(self) -> Interval:
        return Interval(self.low, self.high)

    @staticmethod
    def of(members: Iterable[ByteAccess], sample: Mapping[str, int]) -> Cluster:
        members = tuple(members)
        symbols = Linear(members[0].base().terms)
        hull = Hull.of(members, sample)
        last = {**sample, TRIPS: 2}
        if any(n.evaluate(last) < 0 for n in hull.needs):
            if (all(b.symbols <= {TRIPS} for b in hull.bounds)
                    and not any(m.address.coefficient(TRIPS) for m in members)):
                low, high = _below(hull.lows), -_below({-h for h in hull.highs})
                return Cluster(members, symbols, symbols + low, symbols + high)
            # What is tightest for the captured R may be no bound for the last iterations where another one is.
            late = Hull.of(members, sample, last)
            if late.reaches(sample) == hull.reaches(sample) and all(n.evaluate(last) >= 0 for n in late.needs):
                hull = late
        return Cluster(members, symbols, symbols + hull.low, symbols + hull.high,
                       tuple(n for n in dict.fromkeys(hull.needs) if not proved(n)))

    def footprint(self, name: str) -> Footprint:
        return Footprint(name, self.interval, self.written)


def clusters(accesses: Iterable[ByteAccess], sample: Mapping[str, int]) -> tuple[Cluster, ...]:
    """Group accesses into arrays by their footprints at the captured values (``sample`` gives R too)."""
    groups: dict[Linear, list[ByteAccess]] = {}
    for access in dict.fromkeys(accesses):
        groups.setdefault(Linear(access.base().terms), []).append(access)
    result: list[Cluster] = []
    for members in groups.values():
        parts = [Cluster.of((m,), sample) for m in members]
        while len(merged := _merged(parts, sample)) < len(parts):
            parts = merged
        result += parts
    return tuple(result)


def _merged(parts: list[Cluster], sample: Mapping[str, int]) -> list[Cluster]:
    """``parts`` by address, with those that overlap put together; together they may reach further than each."""
    placed = sorted(((c.low.evaluate(sample), c.high.evaluate(sample), c) for c in parts), key=lambda p: p[:2])
    groups: list[list[Cluster]] = []
    end = 0
    for low, high, part in placed:
        if groups and low < end:
            groups[-1].append(part)
        else:
            groups.append([part])
        end = max(end, high) if len(groups[-1]) > 1 else high
    return [g[0] if len(g) == 1 else Cluster.of((m for c in g for m in c.members), sample) for g in groups]


def delinearise(cluster: Cluster, name: str, sample: Mapping[str, int]) -> tuple[
        Array, dict[ByteAccess, Access], tuple[Relation, ...]]:
    """The array of a cluster, the subscripts of each member, and guards that bound subscripts by R.

    Raises Rejected when elements of different sizes or alignments share bytes.
    """
    elements = {m.element for m in cluster.members}
    base = cluster.symbols + min(m.base().constant for m in cluster.members)
    offsets = [m.base().constant - base.constant for m in cluster.members]
    element = next(iter(elements))
    coefficients = {abs(c) for m in cluster.members for d, _ in m.trips if (c := m.address.coefficient(d))}
    backwards = {m.address.coefficient(s) for m in cluster.members for s in (TRIPS, *m.parameters)}
    if len(elements) > 1 or any(n % element.size for n in (*offsets, *coefficients, *backwards)):
        raise Rejected(Reason.NON_AFFINE, "elements of different sizes or alignments share bytes")
    whole, *others = _strides(coefficients, element.size)
    found = _split(cluster, base, whole, _one_digit, sample)
    if found is None:
        ways = (_split(cluster, base, strides, digits, sample, carry) for strides in (whole, *others)
                for digits, carry in ((_one_digit, False), (_nearest_digits, False), (_nearest_digits, True)))
        found = min(filter(None, ways), key=lambda s: (-len(s.strides), s.falling, s.width, s.terms),
                    default=None)
    if found is not None:
        return (Array(name, element, found.base, found.strides),
                {m: Access(name, s) for m, s in found.subscripts.items()}, found.guards)
    raise Rejected(Reason.NON_AFFINE, f"the subscripts of the array at {base}")


def _strides(coefficients: set[int], size: int) -> Iterator[tuple[int, ...]]:
    """Strides from a large coefficient down, the largest first, at last the element alone; one that does not divide
    the stride above is a multiple of a smaller one."""
    descending = [c for c in sorted(coefficients, reverse=True) if c > size]
    for first in range(min(len(descending), MOST_FIRST)):
        chain: list[int] = []
        for coefficient in descending[first:]:
            if not chain or chain[-1] % coefficient == 0:
                chain.append(coefficient)
        yield (*chain, size)
    yield (size,)


@dataclass(frozen=True, slots=True)
class _Split:
    """``width``: the most that an inner subscript of one access varies. ``falling``: how many of them start the lower
    the more there is to do: how low they may start is guarded, and entries come with more than the captured R."""

    base: Linear
    strides: tuple[int, ...]
    subscripts: Mapping[ByteAccess, tuple[Linear, ...]]
    guards: tuple[Relation, ...]
    width: int
    falling: int

    @property
    def terms(self) -> int:
        return sum(len(x.terms) for places in self.subscripts.values() for x in places)


def _split(
    cluster: Cluster, base: Linear, strides: tuple[int, ...], digits: Digits, sample: Mapping[str, int],
    carry: bool = False
) -> _Split | None:
    """Subscripts for each member, and the base at which the inner ones are not negative; None without a proof.
    ``carry``: each inner one starts within its first row at the captured values (a diagonal that is counted from its
    end ends there)."""
    found = {m: _decompose(m, m.base().constant - base.constant, strides, digits) for m in cluster.members}
    guards: dict[Linear, Relation] = {}
    width = falling = 0
    for inner in reversed(range(1, len(strides))):
        if carry:
            found = {m: _carried(m, s, inner, strides[inner - 1] // strides[inner], sample) for m, s in found.items()}
        bounds = [m.bounds(s[inner], sample) for m, s in found.items()]
        length = strides[inner - 1] // strides[inner]
        below = min(0, *(low.evaluate(sample) for low, _ in bounds))  # counters that go down
        if any(low.coefficient(TRIPS) < 0 for low, _ in bounds):
            below -= _spare(bounds, length - 1 + below, sample)
        base += below * strides[inner]
        found = {m: (*s[:inner], s[inner] - below, *s[inner + 1:]) for m, s in found.items()}
        falling += sum(low.coefficient(TRIPS) < 0 for low, _ in bounds)
        for low, high in bounds:
            width = max(width, (high - low).evaluate(sample))
            for need in (low - below, -high + (below + length - 1)):
                if need.evaluate(sample) < 0:
                    return None
                if not need.is_constant:
                    guards[need] = Relation(need, False, "a row of an array is not longer than its stride")
    return _Split(base, strides, found, tuple(guards.values()), width, falling)


def _spare(bounds: Iterable[tuple[Linear, Linear]], top: int, sample: Mapping[str, int]) -> int:
    """How far subscripts that may reach ``top`` leave room in their row for entries with more to do."""
    room = max(0, top - max(high.evaluate(sample) for _, high in bounds))
    return room // 2 if any(high.coefficient(TRIPS) > 0 for _, high in bounds) else room


def _carried(
    access: ByteAccess, subscripts: tuple[Linear, ...], inner: int, length: int, sample: Mapping[str, int]
) -> tuple[Linear, ...]:
    rows = access.bounds(subscripts[inner], sample)[0].evaluate(sample) // length
    return (*subscripts[:inner - 1], subscripts[inner - 1] + rows, subscripts[inner] - rows * length,
            *subscripts[inner + 1:])


def _decompose(access: ByteAccess, offset: int, strides: tuple[int, ...], digits: Digits) -> tuple[Linear, ...]:
    """Mixed-radix digits of the offset, and of the coefficient of each counter (R and parameters too)."""
    result: list[Linear] = []
    for stride in strides:
        digit, offset = divmod(offset, stride)
        result.append(Linear.of(digit))
    for dimension in (*(d for d, _ in access.trips), TRIPS, *access.parameters):
        for index, digit in enumerate(digits(access.address.coefficient(dimension), strides)):
            result[index] = result[index] + Linear.symbol(dimension, digit)
    return tuple(result)


def _one_digit(coefficient: int, strides: tuple[int, ...]) -> Iterator[int]:
    """All of it in the outermost stride that divides it."""
    for stride in strides:
        digit = coefficient // stride if coefficient % stride == 0 else 0
        coefficient -= digit * stride
        yield digit


def _nearest_digits(coefficient: int, strides: tuple[int, ...]) -> Iterator[int]:
    """Digits that leave a remainder of at most half a stride: a diagonal is one row and a few elements on or back."""
    for stride in strides:
        digit = (2 * coefficient + stride) // (2 * stride)
        coefficient -= digit * stride
        yield digit


def _below(bounds: Iterable[Linear]) -> Linear:
    """A lower bound of all ``bounds``, Linear over R, for R >= 1."""
    bounds = tuple(bounds)
    rest = Linear.symbol(TRIPS) - 1
    slope = min(b.coefficient(TRIPS) for b in bounds)
    return rest * slope + min(b.constant + b.coefficient(TRIPS) for b in bounds)
