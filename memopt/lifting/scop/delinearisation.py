"""Delinearisation: byte addresses become accesses to arrays with subscripts.

Example: ``base + 8000 * i + 8 * j`` with j < 1000 is ``A[i][j]``, where A has the strides (8000, 8).

In: the accesses of all statements as byte addresses, with trip counts and conditions. Out: clusters of accesses that
may share cells, an array with strides for each, subscripts for each access, and guards that bound these for other R.
Accesses over the same live-in symbols whose footprints overlap belong to one array. Its strides are the coefficients of
the loop counters.

Sound because every inner subscript is proved to stay below the next outer stride, so that two cells are equal exactly
when all their subscripts are. A counter that walks along a diagonal moves two subscripts, so several ways to split
coefficients into digits are tried. Where no proof succeeds, the array is one-dimensional, which is always right, only
less precise. (Compare Grosser et al., Optimistic delinearization of parametrically sized arrays, ICS 2015: here sizes
are known numbers.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Footprint, Interval, Relation
from memopt.ir.scop import TRIPS, Access, Array, ElementType
from memopt.lifting.execution.parameters import is_parameter
from memopt.lifting.values.bounds import least_where, proved

MOST_FIRST = 3  # how many coefficients are tried as the outermost stride

Digits = Callable[[int, tuple[int, ...]], Iterator[int]]
"""Splits a coefficient into digits: multiples of the strides that add up to it. The last stride, the element's size,
divides it."""


@dataclass(frozen=True, slots=True)
class ByteAccess:
    """One access of a statement: ``address`` over live-in symbols and dimension names, in bytes."""

    address: Linear
    trips: tuple[tuple[str, Linear], ...]  # dimension -> trip count, over outer dimensions, live-in symbols and R
    element: ElementType
    written: bool
    conditions: tuple[Linear, ...] = ()  # all >= 0 where the access is made

    def base(self) -> Linear:
        """The part of the address that depends neither on loop counters nor on R or parameters."""
        return self.address.without(TRIPS, *self.address.products, *self.parameters, *(d for d, _ in self.trips))

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters in the address (memopt.lifting.execution.parameters)."""
        return tuple(s for s, _ in self.address.terms if is_parameter(s))

    def extent(self, sample: Mapping[str, int]) -> tuple[Linear, Linear]:
        """``low, high``, over R and parameters: all iterations touch bytes in [low, high) only, counted from the
        symbols of the base."""
        low, high = self.bounds(self.address - Linear(self.base().terms), sample, numbers=False)
        return low, high + self.element.size

    def bounds(self, linear: Linear, sample: Mapping[str, int], numbers: bool = True) -> tuple[Linear, Linear]:
        """Smallest and largest value of ``linear`` over the iterations that make the access, over R and parameters.
        ``numbers``: prefer constants, even where other bounds are tighter."""
        ranges = {d: t - 1 for d, t in self.trips}
        conditions = (*self.conditions, *(r for r in ranges.values() if not r.is_constant))
        return (least_where(linear, ranges, conditions, sample, numbers),
                -least_where(-linear, ranges, conditions, sample, numbers))


@dataclass(frozen=True, slots=True)
class Hull:
    """The bytes of several accesses, counted from their common base: the bounds of each, over R and parameters, and the
    extreme ones of these."""

    lows: frozenset[Linear]
    highs: frozenset[Linear]
    low: Linear
    high: Linear

    @staticmethod
    def of(members: Iterable[ByteAccess], sample: Mapping[str, int], tight: Mapping[str, int] | None = None) -> Hull:
        """The hull whose ends are extreme at ``sample``; the bounds are tight at ``tight``, which is ``sample`` unless
        given.
        """
        lows, highs = map(frozenset, zip(*(m.extent(tight or sample) for m in members), strict=True))
        # Bounds of rows that are counted from the end rise or fall with R; others depend on parameters. A guard demands
        # that the chosen bound is extreme at every entry (``needs``). Of equal bounds, the one that is extreme for
        # smaller R too is chosen.
        return Hull(lows, highs, min(lows, key=lambda b: (b.evaluate(sample), -b.factor(TRIPS))),
                    max(highs, key=lambda b: (b.evaluate(sample), -b.factor(TRIPS))))

    @property
    def bounds(self) -> frozenset[Linear]:
        """All lower and upper bounds."""
        return self.lows | self.highs

    @property
    def needs(self) -> list[Linear]:
        """Expressions that must be >= 0, so that ``low`` and ``high`` are bounds."""
        return [b - self.low for b in self.lows] + [self.high - b for b in self.highs]

    def reaches(self, sample: Mapping[str, int]) -> tuple[int, int]:
        """``low`` and ``high`` as numbers."""
        return self.low.evaluate(sample), self.high.evaluate(sample)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Accesses that may share cells, and the bytes they cover together."""

    members: tuple[ByteAccess, ...]
    symbols: Linear  # live-in part of the base, without its constant
    low: Linear  # over symbols, R and parameters
    high: Linear
    needs: tuple[Linear, ...] = ()  # must be >= 0, so that low and high are bounds

    @property
    def written(self) -> bool:
        """Whether any member writes."""
        return any(m.written for m in self.members)

    @property
    def interval(self) -> Interval:
        """The bytes that all iterations touch."""
        return Interval(self.low, self.high)

    @staticmethod
    def of(members: Iterable[ByteAccess], sample: Mapping[str, int]) -> Cluster:
        """The cluster of accesses over the same live-in symbols."""
        members = tuple(members)
        symbols = Linear(members[0].base().terms)
        hull = Hull.of(members, sample)
        last = {**sample, TRIPS: 2}
        if any(n.evaluate(last) < 0 for n in hull.needs):
            if (all(b.symbols <= {TRIPS} for b in hull.bounds)
                    and not any(TRIPS in m.address.symbols for m in members)):
                low, high = _below(hull.lows), -_below({-h for h in hull.highs})
                return Cluster(members, symbols, symbols + low, symbols + high)
            # A bound that is tightest for the captured R may be none for the last iterations, where another one is.
            late = Hull.of(members, sample, last)
            if late.reaches(sample) == hull.reaches(sample) and all(n.evaluate(last) >= 0 for n in late.needs):
                hull = late
        return Cluster(members, symbols, symbols + hull.low, symbols + hull.high,
                       tuple(n for n in dict.fromkeys(hull.needs) if not proved(n)))

    def footprint(self, name: str) -> Footprint:
        """The footprint of the array that is called ``name``."""
        return Footprint(name, self.interval, self.written)


def clusters(accesses: Iterable[ByteAccess], sample: Mapping[str, int]) -> tuple[Cluster, ...]:
    """Groups accesses into arrays by their footprints at the captured values (``sample`` includes R)."""
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
    """``parts`` in the order of addresses, with overlapping ones merged. A merged one may reach further than its parts,
    so the caller repeats this."""
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
    """The array of a cluster, the subscripts of each member, and guards that bound subscripts for other R.

    Raises Rejected(NON_AFFINE) where elements of different sizes or alignments share bytes.
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
    raise Rejected(Reason.NON_AFFINE, f"no subscripts are found for the array at {base}")


def _strides(coefficients: set[int], size: int) -> Iterator[tuple[int, ...]]:
    """Candidates for the strides of an array, those with the largest outermost stride first, the element alone last. A
    coefficient that does not divide the stride above it is left out, as a multiple of a smaller one."""
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
    """One way to split addresses into subscripts. ``width``: the most that an inner subscript of one access varies.
    ``falling``: how many inner subscripts start lower for larger R. How low they may start is guarded, so entries with
    more iterations than captured might fail that guard."""

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
    """Subscripts for each member, and a base at which the inner ones are not negative. None where no proof succeeds.
    ``carry``: whole rows are carried to the next outer subscript, so that each inner one starts within its first row at
    the captured values (for a diagonal that is counted from its end)."""
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
    """How much room subscripts that may reach ``top`` leave in their row, for entries with larger R."""
    room = max(0, top - max(high.evaluate(sample) for _, high in bounds))
    return room // 2 if any(high.coefficient(TRIPS) > 0 for _, high in bounds) else room


def _carried(
    access: ByteAccess, subscripts: tuple[Linear, ...], inner: int, length: int, sample: Mapping[str, int]
) -> tuple[Linear, ...]:
    rows = access.bounds(subscripts[inner], sample)[0].evaluate(sample) // length
    return (*subscripts[:inner - 1], subscripts[inner - 1] + rows, subscripts[inner] - rows * length,
            *subscripts[inner + 1:])


def _decompose(access: ByteAccess, offset: int, strides: tuple[int, ...], digits: Digits) -> tuple[Linear, ...]:
    """The subscripts: mixed-radix digits of the offset, and of the coefficient of each counter, R and parameter."""
    result: list[Linear] = []
    for stride in strides:
        digit, offset = divmod(offset, stride)
        result.append(Linear.of(digit))
    for dimension in (*(d for d, _ in access.trips), TRIPS, *access.parameters):
        for index, digit in enumerate(digits(access.address.coefficient(dimension), strides)):
            result[index] = result[index] + Linear.symbol(dimension, digit)
    return tuple(result)


def _one_digit(coefficient: int, strides: tuple[int, ...]) -> Iterator[int]:
    """One digit: the whole coefficient belongs to the outermost stride that divides it."""
    for stride in strides:
        digit = coefficient // stride if coefficient % stride == 0 else 0
        coefficient -= digit * stride
        yield digit


def _nearest_digits(coefficient: int, strides: tuple[int, ...]) -> Iterator[int]:
    """Digits that leave a remainder of at most half a stride: a step along a diagonal is one row plus or minus a few
    elements."""
    for stride in strides:
        digit = (2 * coefficient + stride) // (2 * stride)
        coefficient -= digit * stride
        yield digit


def _below(bounds: Iterable[Linear]) -> Linear:
    """A common lower bound of ``bounds``, over R, for R >= 1."""
    bounds = tuple(bounds)
    rest = Linear.symbol(TRIPS) - 1
    slope = min(b.coefficient(TRIPS) for b in bounds)
    return rest * slope + min(b.constant + b.coefficient(TRIPS) for b in bounds)
