"""Delinearisation: from byte addresses back to arrays with subscripts.

Accesses over the same live-in symbols whose footprints touch belong to one array. Its strides are the coefficients
of the loop counters; every inner subscript is proved to stay below the next outer stride, so that two cells are
equal exactly when all their subscripts are. Where that proof fails the array is one-dimensional, which is always
right and only less precise. (Compare Grosser et al., Optimistic delinearization of parametrically sized arrays,
ICS 2015: here sizes are known numbers.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from memopt.analysis.bounds import least_where, proved
from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Footprint, Interval, Relation
from memopt.ir.scop import TRIPS, Access, Array, ElementType


@dataclass(frozen=True, slots=True)
class ByteAccess:
    """One access of a statement: ``address`` over live-in symbols and dimension names, in bytes."""

    address: Linear
    trips: tuple[tuple[str, Linear], ...]  # dimension -> trip count, over outer dimensions, live-in symbols and R
    element: ElementType
    written: bool
    conditions: tuple[Linear, ...] = ()  # all >= 0 where the access is made

    def base(self) -> Linear:
        """The part that depends neither on the loop counters nor on R."""
        return self.address.without(TRIPS, *(d for d, _ in self.trips))

    def extent(self, sample: Mapping[str, int]) -> tuple[Linear, Linear]:
        """The bytes touched in all iterations lie in [low, high) from the base's symbols on: Linear over R."""
        low, high = self.bounds(self.address - Linear(self.base().terms), sample)
        return low, high + self.element.size

    def bounds(self, linear: Linear, sample: Mapping[str, int]) -> tuple[Linear, Linear]:
        """Smallest and largest value over the iterations that make the access, Linear over R."""
        ranges = {d: t - 1 for d, t in self.trips}
        conditions = (*self.conditions, *(r for r in ranges.values() if not r.is_constant))
        return (least_where(linear, ranges, conditions, sample), -least_where(-linear, ranges, conditions, sample))


@dataclass(frozen=True, slots=True)
class Cluster:
    """Accesses that may share cells, and the bytes they cover together."""

    members: tuple[ByteAccess, ...]
    symbols: Linear  # live-in part of the base, without its constant
    low: Linear  # over symbols and R
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
        lows, highs = map(set, zip(*(m.extent(sample) for m in members), strict=True))
        low = _below(lows)
        high = -_below({-h for h in highs})
        if not any(m.address.coefficient(TRIPS) for m in members):
            return Cluster(members, symbols, symbols + low, symbols + high)
        # Rows that are counted from the end: their bounds follow R in both directions, the extreme one is guarded.
        low = min(lows, key=lambda b: (b.evaluate(sample), -b.coefficient(TRIPS)))
        high = max(highs, key=lambda b: (b.evaluate(sample), -b.coefficient(TRIPS)))
        needs = [b - low for b in lows] + [high - b for b in highs]
        return Cluster(members, symbols, symbols + low, symbols + high,
                       tuple(n for n in dict.fromkeys(needs) if not proved(n)))

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
    backwards = {m.address.coefficient(TRIPS) for m in cluster.members}
    if len(elements) > 1 or any(n % element.size for n in (*offsets, *coefficients, *backwards)):
        raise Rejected(Reason.NON_AFFINE, "elements of different sizes or alignments share bytes")
    for strides in (_strides(coefficients, element.size), (element.size,)):
        found = _subscripts(cluster, base, strides, sample)
        if found is not None:
            accesses = {m: Access(name, s) for m, s in found[0].items()}
            return Array(name, element, base, strides), accesses, found[1]
    raise Rejected(Reason.NON_AFFINE, f"the subscripts of the array at {base}")


def _strides(coefficients: set[int], size: int) -> tuple[int, ...]:
    """Strides from the largest coefficient down; one that does not divide the stride above is a multiple of a
    smaller one."""
    chain: list[int] = []
    for coefficient in sorted(coefficients, reverse=True):
        if coefficient > size and (not chain or chain[-1] % coefficient == 0):
            chain.append(coefficient)
    return (*chain, size)


def _subscripts(cluster: Cluster, base: Linear, strides: tuple[int, ...], sample: Mapping[str, int]) -> tuple[
        dict[ByteAccess, tuple[Linear, ...]], tuple[Relation, ...]] | None:
    found: dict[ByteAccess, tuple[Linear, ...]] = {}
    guards: dict[Linear, Relation] = {}
    for member in cluster.members:
        subscripts = _decompose(member, member.base().constant - base.constant, strides)
        for outer, (subscript, stride) in enumerate(zip(subscripts[1:], strides[1:], strict=True)):
            low, high = member.bounds(subscript, sample)
            room = -high + (strides[outer] // stride - 1)
            if low.evaluate(sample) < 0 or room.evaluate(sample) < 0:
                return None
            for need in (low, room):
                if not need.is_constant:
                    guards[need] = Relation(need, False, "a row of an array is not longer than its stride")
        found[member] = subscripts
    return found, tuple(guards.values())


def _decompose(access: ByteAccess, offset: int, strides: tuple[int, ...]) -> tuple[Linear, ...]:
    """Mixed-radix digits of the offset, and each counter (and R) in the outermost stride that divides its
    coefficient."""
    result: list[Linear] = []
    for stride in strides:
        digit, offset = divmod(offset, stride)
        result.append(Linear.of(digit))
    for dimension in (*(d for d, _ in access.trips), TRIPS):
        coefficient = access.address.coefficient(dimension)
        if coefficient:
            index = next(i for i, s in enumerate(strides) if coefficient % s == 0)
            result[index] = result[index] + Linear.symbol(dimension, coefficient // strides[index])
    return tuple(result)


def _below(bounds: set[Linear]) -> Linear:
    """A lower bound of all ``bounds``, Linear over R, for R >= 1."""
    rest = Linear.symbol(TRIPS) - 1
    slope = min(b.coefficient(TRIPS) for b in bounds)
    return rest * slope + min(b.constant + b.coefficient(TRIPS) for b in bounds)
