"""Parametric delinearisation: an array whose rows are as long as a live-in value says.

Example: ``base + 8*n*i + 8*j``, where n is 1000 at one entry and 1200 at the next, is ``A[i][j]`` with the strides
(8*n, 8) and the guard that j stays below n.

In: a cluster of accesses (memopt.lifting.scop.delinearisation) with products of a counter and one parameter, the
stride. Out: an array of two dimensions, the subscripts of each access, and guards. Raises Rejected(NON_AFFINE) where
the products have no parameter in common, or no subscripts are found that are in range at the captured values.

An address is the base + L*row + size*column, where L is the length of a row in bytes, over the parameter. Row and
column are linear. Two cells are equal exactly when both subscripts are, because guards checked at every entry show:

- ``0 <= column`` and ``size * (column + 1) <= L`` for the least and the greatest column of any iteration, over R and
  parameters. So the bytes of different rows are disjoint, also where L is no multiple of the element's size. A row
  that is shorter than the columns in use, and an L of zero or below, fail this guard, since a column has a size.
- The distance from the first byte to behind the last one is computed without overflow in 64 bits. So cells that differ
  as numbers differ modulo 2**64, too. (Rows 2**61 doubles long would all be one.)
- The parameter keeps its value while the nest runs: it is in a register or cell that no iteration changes, and the
  cell overlaps nothing that is written (memopt.lifting.scop.region_builder). It is at least 1, which bounds of
  products rely on (memopt.lifting.execution.executor).

(Grosser et al., Optimistic delinearization of parametrically sized arrays, ICS 2015.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from memopt.ir.linear import Linear, product
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Relation
from memopt.ir.scop import Access, Array, SymbolicStride
from memopt.lifting.execution.parameters import is_parameter, parametric
from memopt.lifting.scop.delinearisation import ByteAccess, Cluster


@dataclass(frozen=True, slots=True)
class _Place:
    """The subscripts of an access, counted from the array's base."""

    row: Linear
    column: Linear


def rows_of(cluster: Cluster, name: str, sample: Mapping[str, int]) -> tuple[
        Array, dict[ByteAccess, Access], tuple[Relation, ...]]:
    """The array of a cluster with products in its addresses, the subscripts of each member, and guards."""
    sizes = {m.element for m in cluster.members}
    if len(sizes) > 1:
        raise Rejected(Reason.NON_AFFINE, "elements of different sizes share rows")
    element = sizes.pop()
    base = cluster.symbols + min(m.base().constant for m in cluster.members)
    addresses = {m: m.address - base for m in cluster.members}
    for length in _lengths(cluster):
        for shared in (True, False):
            places = {m: _place(a, length, element.size, shared) for m, a in addresses.items()}
            found = {m: p for m, p in places.items() if p is not None}
            guarded = _in_rows(found, length, element.size, sample) if len(found) == len(places) else None
            if guarded is not None:
                below, guards = guarded
                extent = cluster.high - cluster.low - element.size
                guards += (Relation(extent, False, "the array is smaller than the address space"),)
                array = Array(name, element, base + below * element.size,
                              (SymbolicStride(length, length.evaluate(sample)), element.size))
                return array, {m: Access(name, (p.row, p.column - below)) for m, p in found.items()}, guards
    raise Rejected(Reason.NON_AFFINE, f"no subscripts are found for the array at {base}, with rows of a length that "
                                      "differs between entries")


def _lengths(cluster: Cluster) -> Iterator[Linear]:
    """Candidates for the length of a row in bytes: the common factor of the products, with the number that some counter
    has beside it (the row may be padded), and without."""
    products = {p for m in cluster.members for p in m.address.products}
    common = frozenset.intersection(*(frozenset(p.factors) for p in products))
    for stride in sorted(s for s in common if is_parameter(s)):
        times = math.gcd(*(m.address.factor(p) for m in cluster.members for p in m.address.products))
        beside = {m.address.factor(p.other(stride)) * (1 if m.address.factor(p) > 0 else -1)
                  for m in cluster.members for p in m.address.products if abs(m.address.factor(p)) == times}
        for number in sorted({0, *beside}, key=abs):
            yield Linear.symbol(stride, times, number)


def _place(address: Linear, length: Linear, size: int, shared: bool) -> _Place | None:
    """Row and column of ``address``, counted from the base. ``shared``: a multiple of the stride alone counts rows;
    otherwise columns, as in ``a[i*n + n - 1 - k]``. None where the address is no such sum."""
    ((stride, times),) = length.terms
    row = Linear()
    for made in address.products:
        if stride not in made.factors:
            return None
        row = row + Linear.symbol(made.other(stride), address.factor(made) // times)
    rest = address - product(row, length)
    if shared and rest.factor(stride) % times == 0:
        more = rest.factor(stride) // times
        row, rest = row + more, rest - length * more
    if rest.products or any(c % size for c in (rest.constant, *(c for _, c in rest.terms))):
        return None
    return _Place(row, Linear(tuple((s, c // size) for s, c in rest.terms), rest.constant // size))


def _in_rows(places: Mapping[ByteAccess, _Place], length: Linear, size: int, sample: Mapping[str, int]) -> (
        tuple[Linear, tuple[Relation, ...]] | None):
    """How many elements the first column lies behind the base, over parameters, and the guards that columns are in
    range; None where they are not at the captured values."""
    bounds = [m.bounds(p.column, sample, numbers=False) for m, p in places.items()]
    # The base may be the end of a row, as where a pointer runs up to it.
    below = min((Linear(), *(low for low, _ in bounds)), key=lambda low: low.evaluate(sample))
    below = below if parametric(below) else Linear.of(below.evaluate(sample))
    guards: dict[Linear, Relation] = {}
    for low, high in bounds:
        for need in (low - below, length - (high - below + 1) * size):
            if need.evaluate(sample) < 0:
                return None
            if not need.is_constant:
                guards[need] = Relation(need, False, "a row of an array is not longer than its stride")
    return below, tuple(guards.values())
