"""Scalar expansion: private arrays with made-up addresses, for values that no memory cell of the program holds.

Example: ``for (i...) for (j...) { t = a[i][j]; a[i][j] = 0; b[j][i] = t; }`` needs a cell for t in each iteration:
``p[i][j]``. Without the subscripts, one cell would be reused and the iterations would depend on each other.

A private cell has a byte address like any other, ``p:0 + sum(stride * counter)``, so that all later stages up to the
SCoP handle it without a special case. The strides are so far apart that the subscripts can be read back from an address
(``subscripts``), even after rerolling has divided the iterations among copies. Different private symbols are
different arrays and never overlap.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import field

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear

PRIVATE = "p:"  # prefix of the symbols of private arrays
_CELL = 1 << 20  # more than the bytes of one cell
_UNIT = 45045 << 60  # from one cell to the next: divisible by every number of copies a compiler makes
_LEVEL = 1 << 160  # from one subscript to the next: more than any counter reaches


def is_private(address: Linear) -> bool:
    """Whether ``address`` is one of a private array."""
    return any(s.startswith(PRIVATE) for s in address.symbols)


def private_symbol(address: Linear) -> str:
    """The symbol of the private array that ``address`` belongs to."""
    symbol, = (s for s in address.symbols if s.startswith(PRIVATE))
    return symbol


def counters_of(address: Linear) -> set[str]:
    """The counters that are subscripts of a private cell."""
    return {s for s in address.symbols if not s.startswith(PRIVATE)}


@dataclass(frozen=True, slots=True)
class ExpandedScalars:
    """The private arrays of one attempt, by content. ``kind``: a prefix that keeps the names of several uses apart."""

    kind: str = ""
    names: dict[Hashable, str] = field(default_factory=dict)

    def cell(self, content: Hashable, counters: tuple[str, ...]) -> Linear:
        """The cell of ``content`` in the current iteration of the loops with ``counters``, outermost first."""
        name = self.names.setdefault(content, f"{PRIVATE}{self.kind}{len(self.names)}")
        strides = {c: _UNIT * _LEVEL ** level for level, c in enumerate(reversed(counters))}
        return Linear.build({name: 1, **strides})


def private_sample(names: Iterable[str]) -> dict[str, int]:
    """A made-up base address for each private symbol, so far apart that the arrays cannot overlap."""
    return {name: (number + 1) * _LEVEL ** 16 for number, name in enumerate(dict.fromkeys(names))}


def subscripts(addresses: list[Linear]) -> list[tuple[Linear, ...]]:
    """The subscripts of each address, all in one private array: two are equal exactly if the addresses are."""
    first = addresses[0]
    rows = [_digits(a.without(private_symbol(a)) - first.constant) for a in addresses]
    depth = max(map(len, rows))
    rows = [row + [Linear()] * (depth - len(row)) for row in rows]
    units = [math.gcd(*(n for row in rows for n in _numbers(row[place]))) for place in range(depth)]
    kept = [place for place in reversed(range(depth)) if units[place]]
    return [tuple(_divided(row[place], units[place]) for place in kept) for row in rows]


def _digits(address: Linear) -> list[Linear]:
    """The digits of an address: bytes inside a cell, then the subscript of each level, innermost first."""
    result: list[dict[str, int]] = []
    for name, number in (*address.terms, ("", address.constant)):
        for place, digit in enumerate(_places(number)):
            result += [{} for _ in range(place + 1 - len(result))]
            result[place][name] = digit
    return [Linear.build({n: d for n, d in digits.items() if n}, digits.get("", 0)) for digits in result]


def _places(number: int) -> list[int]:
    result = []
    for size in (_CELL, _LEVEL // _CELL):
        low = _centred(number, size)
        result.append(low)
        number = (number - low) // size
    while number:
        low = _centred(number, _LEVEL)
        result.append(low)
        number = (number - low) // _LEVEL
    return result


def _centred(number: int, size: int) -> int:
    return (number + size // 2) % size - size // 2


def _numbers(linear: Linear) -> list[int]:
    return [linear.constant, *(c for _, c in linear.terms)]


def _divided(linear: Linear, unit: int) -> Linear:
    return Linear(tuple((s, c // unit) for s, c in linear.terms), linear.constant // unit)
