"""Integer affine expressions over named symbols: ``constant + sum(coefficient * symbol)``.

Example: the address of ``A[i][k]`` in an array of 23 doubles a row is ``184*i + 8*k + r13``.

Invariant: terms are sorted by symbol, and no coefficient is zero. So equal expressions are equal values.
Arithmetic is exact (Python integers). Code that needs 64-bit wrap-around says so where it happens.

A symbol may be a ``Quotient``: an expression divided by a number and rounded down, as the trip count of a vectorised
loop is. Or it is a ``Product`` of two symbols: a counter and the length of a row, as in ``a[i*n + k]``. Expressions
stay linear in these symbols. Substitution of a symbol reaches numerators and factors as well. Whoever needs the
coefficient of a symbol that stands in a quotient or a product is refused, unless it knows about them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from memopt.ir.frozen import dataclass
from memopt.ir.reasons import Reason, Rejected

_INSIDE = r"[ !#-Z\\^-~]"  # ASCII, but for quotation marks and brackets
_BRACKETS = rf"\[{_INSIDE}*\]"
for _ in range(2):  # a cell whose pointer lies in a cell, and one more
    _BRACKETS = rf"\[(?:{_INSIDE}|{_BRACKETS})*\]"
# A symbol that text forms print as it is: "rax", "b:r10", "m[8*rbx + r13]:64", "xmm3[0:8]", "[rsp-0x8]:8".
PLAIN_SYMBOL = re.compile(rf"(?:[A-Za-z_?]|{_BRACKETS})(?:[\w.#?]|{_BRACKETS}|:(?=[\w\[#?]))*", re.ASCII)


def spelled(symbol: str) -> str:
    """The symbol as text forms print it: in quotation marks (JSON) unless it is plain or made of others."""
    if isinstance(symbol, Compound) or PLAIN_SYMBOL.fullmatch(symbol):
        return symbol
    return json.dumps(symbol)


class Compound(str):
    """A symbol whose value follows from other symbols: a ``Quotient`` or a ``Product``.

    The name begins with the prefix of loop counters (memopt.lifting.values.algebra.LOOP_COUNTER): the value may change
    with counters inside, and it is no live-in.
    """

    inside: frozenset[str]  # the symbols that it depends on

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The value for the given values of the symbols inside."""
        raise NotImplementedError

    def substitute(self, values: Mapping[str, Linear]) -> Linear:
        """The value with ``values`` in place of symbols."""
        raise NotImplementedError


class Quotient(Compound):
    """The symbol for ``numerator / divisor``, rounded down. Made by ``quotient``, which gives equal ones one form."""

    numerator: Linear
    divisor: int

    def __new__(cls, numerator: Linear, divisor: int) -> Quotient:
        symbol = super().__new__(cls, f"c:({numerator})/{divisor}")
        symbol.numerator, symbol.divisor = numerator, divisor
        symbol.inside = numerator.symbols | {symbol}
        return symbol

    def __getnewargs__(self) -> tuple[Linear, int]:  # type: ignore[override]
        return self.numerator, self.divisor

    def evaluate(self, values: Mapping[str, int]) -> int:
        return self.numerator.evaluate(values) // self.divisor

    def substitute(self, values: Mapping[str, Linear]) -> Linear:
        return quotient(self.numerator.substitute(values), self.divisor)


class Product(Compound):
    """The symbol for the product of two symbols, neither of which is made of others. Made by ``product``.

    In what lifting makes, one factor is a stride: a live-in value that is the same throughout the nest, and at least 1
    by a guard (memopt.lifting.execution.assumptions).
    """

    factors: tuple[str, str]  # sorted

    def __new__(cls, one: str, two: str) -> Product:
        first, second = sorted((one, two))
        symbol = super().__new__(cls, f"c:({spelled(first)})*({spelled(second)})")
        symbol.factors, symbol.inside = (first, second), frozenset((first, second))
        return symbol

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return self.factors

    def other(self, factor: str) -> str:
        """The other factor than ``factor``."""
        return self.factors[1] if self.factors[0] == factor else self.factors[0]

    def evaluate(self, values: Mapping[str, int]) -> int:
        return values[self.factors[0]] * values[self.factors[1]]

    def substitute(self, values: Mapping[str, Linear]) -> Linear:
        one, two = (values.get(f) or Linear.symbol(f) for f in self.factors)
        return product(one, two)


def quotient(linear: Linear, divisor: int) -> Linear:
    """``linear / divisor`` rounded down: the terms that ``divisor`` divides, plus a Quotient of the other terms."""
    whole = Linear(tuple((s, c // divisor) for s, c in linear.terms if not c % divisor), linear.constant // divisor)
    rest = Linear(tuple(t for t in linear.terms if t[1] % divisor), linear.constant % divisor)
    return whole + Linear.symbol(Quotient(rest, divisor)) if rest.terms else whole


def product(one: Linear, two: Linear) -> Linear:
    """``one * two``, multiplied out. Raises Rejected(NON_AFFINE) where that takes more than products of two symbols."""
    result = two * one.constant + Linear(one.terms) * two.constant
    for first, times in one.terms:
        for second, count in two.terms:
            if isinstance(first, Compound) or isinstance(second, Compound):
                raise Rejected(Reason.NON_AFFINE, f"the product of {spelled(first)} and {spelled(second)}")
            result = result + Linear.symbol(Product(first, second), times * count)
    return result


@dataclass(frozen=True, slots=True)
class Linear:
    """``constant + sum(coefficient * symbol)`` with integer coefficients."""

    # (symbol, coefficient), sorted by symbol, no coefficient 0
    terms: tuple[tuple[str, int], ...] = ()
    constant: int = 0

    @staticmethod
    def of(value: int) -> Linear:
        """A constant."""
        return Linear((), value)

    @staticmethod
    def symbol(name: str, coefficient: int = 1, constant: int = 0) -> Linear:
        """``coefficient*name + constant``."""
        return Linear(((name, coefficient),) if coefficient else (), constant)

    @staticmethod
    def build(terms: Mapping[str, int], constant: int = 0) -> Linear:
        """The expression with the coefficients ``terms``, by symbol, in any order; zeros are dropped."""
        return Linear(tuple(sorted([t for t in terms.items() if t[1]])), constant)

    @property
    def symbols(self) -> frozenset[str]:
        """Every symbol the value depends on: quotients, the symbols inside them, and the factors of products."""
        made = self._compounds
        if not made:
            return frozenset([s for s, _ in self.terms])
        return frozenset([s for s, _ in self.terms if not isinstance(s, Product)]).union(*(c.inside for c in made))

    @property
    def _compounds(self) -> tuple[Compound, ...]:
        return tuple([s for s, _ in self.terms if isinstance(s, Compound)])

    @property
    def quotients(self) -> tuple[Quotient, ...]:
        """The symbols that are quotients."""
        return tuple([s for s, _ in self.terms if isinstance(s, Quotient)])

    @property
    def products(self) -> tuple[Product, ...]:
        """The symbols that are products."""
        return tuple([s for s, _ in self.terms if isinstance(s, Product)])

    @property
    def is_constant(self) -> bool:
        """Whether no symbol occurs."""
        return not self.terms

    def coefficient(self, symbol: str) -> int:
        """The coefficient of ``symbol``. Raises Rejected(NON_AFFINE) if a quotient or a product depends on it."""
        self._check_affine(symbol)
        return self.factor(symbol)

    def factor(self, symbol: str) -> int:
        """The coefficient of the symbol's own term; quotients and products that depend on it are ignored."""
        for name, coefficient in self.terms:
            if name == symbol:
                return coefficient
        return 0

    def _check_affine(self, *symbols: str) -> None:
        for made in self._compounds:
            if made not in symbols and not made.inside.isdisjoint(symbols):
                raise Rejected(Reason.NON_AFFINE, f"{made.numerator} is divided by {made.divisor} and rounded"
                               if isinstance(made, Quotient) else f"{' and '.join(made.inside)} are multiplied")

    def without(self, *symbols: str) -> Linear:
        """The expression with the terms of ``symbols`` dropped. Raises Rejected(NON_AFFINE) like ``coefficient``."""
        self._check_affine(*symbols)
        return Linear(tuple([t for t in self.terms if t[0] not in symbols]), self.constant)

    def __add__(self, other: Linear | int) -> Linear:
        if isinstance(other, int):
            return Linear(self.terms, self.constant + other)
        return self._plus(other, 1)

    def _plus(self, other: Linear, factor: int) -> Linear:
        """``self + factor * other``."""
        constant = self.constant + factor * other.constant
        if not other.terms:
            return Linear(self.terms, constant)
        terms = dict(self.terms)
        for symbol, coefficient in other.terms:
            terms[symbol] = terms.get(symbol, 0) + factor * coefficient
        return Linear.build(terms, constant)

    def __neg__(self) -> Linear:
        return self * -1

    def __sub__(self, other: Linear | int) -> Linear:
        return Linear(self.terms, self.constant - other) if isinstance(other, int) else self._plus(other, -1)

    def __mul__(self, factor: int) -> Linear:
        if factor == 0:
            return Linear()
        return Linear(tuple([(s, c * factor) for s, c in self.terms]), self.constant * factor)

    def substitute(self, values: Mapping[str, Linear]) -> Linear:
        """Simultaneous substitution: every symbol in ``values`` replaced by its expression."""
        kept = [t for t in self.terms if t[0] not in values and not isinstance(t[0], Compound)]
        if len(kept) == len(self.terms):
            return self
        result = Linear(tuple(kept), self.constant)
        for symbol, coefficient in self.terms:
            if symbol in values:
                result = result._plus(values[symbol], coefficient)
            elif isinstance(symbol, Compound):
                result = result._plus(symbol.substitute(values), coefficient)
        return result

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The value for the given values of the symbols. Raises ``KeyError`` if one has no value."""
        return self.constant + sum(
            [c * (s.evaluate(values) if isinstance(s, Compound) else values[s]) for s, c in self.terms])

    def __str__(self) -> str:
        text = ""
        for symbol, coefficient in self.terms:
            sign = ("-" if coefficient < 0 else "") if not text else " - " if coefficient < 0 else " + "
            text += sign + (f"{abs(coefficient)}*" if abs(coefficient) != 1 else "") + spelled(symbol)
        if not text:
            return str(self.constant)
        return text + (f" {'-' if self.constant < 0 else '+'} {abs(self.constant)}" if self.constant else "")
