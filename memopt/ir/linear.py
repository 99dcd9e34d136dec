"""Integer linear expressions over named symbols: ``constant + sum(coefficient * symbol)``.

Invariant: terms are sorted by symbol, no coefficient is zero; equality is therefore structural.
Arithmetic is exact (Python integers); who needs 64-bit wrap-around says so where it happens.

A symbol may be a ``Quotient``, an expression divided by a number and rounded down (the iterations of a vectorised
loop). It follows what its expression is made of: replacing a symbol replaces it there as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from memopt.ir.reasons import Reason, Rejected


class Quotient(str):
    """The symbol of ``numerator / divisor``, rounded down; made by ``quotient``, which keeps them in one form.

    The name begins like a loop counter's (memopt.lifting.values.algebra.LOOP_COUNTER): it changes with the counters
    that the numerator is made of, and no live-in value is behind it.
    """

    numerator: Linear
    divisor: int

    def __new__(cls, numerator: Linear, divisor: int) -> Quotient:
        symbol = super().__new__(cls, f"c:({numerator})/{divisor}")
        symbol.numerator, symbol.divisor = numerator, divisor
        return symbol


def quotient(linear: Linear, divisor: int) -> Linear:
    """``linear / divisor`` rounded down: what divides evenly, and a Quotient of the rest."""
    whole = Linear(tuple((s, c // divisor) for s, c in linear.terms if not c % divisor), linear.constant // divisor)
    rest = Linear(tuple(t for t in linear.terms if t[1] % divisor), linear.constant % divisor)
    return whole + Linear.symbol(Quotient(rest, divisor)) if rest.terms else whole


@dataclass(frozen=True, slots=True)
class Linear:
    """``constant + sum(coefficient * symbol)`` with integer coefficients."""

    terms: tuple[tuple[str, int], ...] = ()
    constant: int = 0

    @staticmethod
    def of(value: int) -> Linear:
        return Linear((), value)

    @staticmethod
    def symbol(name: str, coefficient: int = 1, constant: int = 0) -> Linear:
        return Linear(((name, coefficient),) if coefficient else (), constant)

    @staticmethod
    def build(terms: Mapping[str, int], constant: int = 0) -> Linear:
        return Linear(tuple(sorted([t for t in terms.items() if t[1]])), constant)

    @property
    def symbols(self) -> frozenset[str]:
        """Every symbol the value depends on: those inside of quotients too."""
        found = frozenset([s for s, _ in self.terms])
        rounded = self.quotients
        return found.union(*(q.numerator.symbols for q in rounded)) if rounded else found

    @property
    def quotients(self) -> tuple[Quotient, ...]:
        return tuple([s for s, _ in self.terms if isinstance(s, Quotient)])

    @property
    def is_constant(self) -> bool:
        return not self.terms

    def coefficient(self, symbol: str) -> int:
        """What the value grows by with ``symbol``. Raises Rejected(NON_AFFINE) when that is no number."""
        self._check_affine(symbol)
        return self.factor(symbol)

    def factor(self, symbol: str) -> int:
        """The coefficient of the symbol's own term, whatever quotients depend on it."""
        for name, coefficient in self.terms:
            if name == symbol:
                return coefficient
        return 0

    def _check_affine(self, *symbols: str) -> None:
        for rounded in self.quotients:
            if not rounded.numerator.symbols.isdisjoint(symbols):
                raise Rejected(Reason.NON_AFFINE, f"{rounded.numerator} is divided by {rounded.divisor} and rounded")

    def without(self, *symbols: str) -> Linear:
        """The expression with the terms of ``symbols`` dropped. Raises Rejected(NON_AFFINE) like ``coefficient``."""
        self._check_affine(*symbols)
        return Linear(tuple([t for t in self.terms if t[0] not in symbols]), self.constant)

    def __add__(self, other: Linear | int) -> Linear:
        if isinstance(other, int):
            return Linear(self.terms, self.constant + other)
        return self._plus(other, 1)

    def _plus(self, other: Linear, factor: int) -> Linear:
        """``self + factor * other``"""
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
        """Every symbol in ``values`` replaced by its expression, all at once."""
        kept = [t for t in self.terms if t[0] not in values and not isinstance(t[0], Quotient)]
        if len(kept) == len(self.terms):
            return self
        result = Linear(tuple(kept), self.constant)
        for symbol, coefficient in self.terms:
            if symbol in values:
                result = result._plus(values[symbol], coefficient)
            elif isinstance(symbol, Quotient):
                rounded = quotient(symbol.numerator.substitute(values), symbol.divisor)
                result = result._plus(rounded, coefficient)
        return result

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The number at a point; raises ``KeyError`` when a symbol has no value."""
        return self.constant + sum(
            c * (s.numerator.evaluate(values) // s.divisor if isinstance(s, Quotient) else values[s])
            for s, c in self.terms)

    def __str__(self) -> str:
        parts = [s if c == 1 else f"-{s}" if c == -1 else f"{c}*{s}" for s, c in self.terms]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts).replace("+ -", "- ")
