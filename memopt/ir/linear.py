"""Integer linear expressions over named symbols: ``constant + sum(coefficient * symbol)``.

Invariant: terms are sorted by symbol, no coefficient is zero; equality is therefore structural.
Arithmetic is exact (Python integers); who needs 64-bit wrap-around says so where it happens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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
        return Linear(tuple(sorted((s, c) for s, c in terms.items() if c)), constant)

    @property
    def symbols(self) -> frozenset[str]:
        return frozenset(s for s, _ in self.terms)

    @property
    def is_constant(self) -> bool:
        return not self.terms

    def coefficient(self, symbol: str) -> int:
        return next((c for s, c in self.terms if s == symbol), 0)

    def without(self, *symbols: str) -> Linear:
        """The expression with the terms of ``symbols`` dropped."""
        return Linear(tuple(t for t in self.terms if t[0] not in symbols), self.constant)

    def __add__(self, other: Linear | int) -> Linear:
        if isinstance(other, int):
            return Linear(self.terms, self.constant + other)
        if not other.terms:
            return Linear(self.terms, self.constant + other.constant)
        terms = dict(self.terms)
        for symbol, coefficient in other.terms:
            terms[symbol] = terms.get(symbol, 0) + coefficient
        return Linear.build(terms, self.constant + other.constant)

    def __neg__(self) -> Linear:
        return self * -1

    def __sub__(self, other: Linear | int) -> Linear:
        return self + (-other)

    def __mul__(self, factor: int) -> Linear:
        if factor == 0:
            return Linear()
        return Linear(tuple((s, c * factor) for s, c in self.terms), self.constant * factor)

    def substitute(self, values: Mapping[str, Linear]) -> Linear:
        """Every symbol in ``values`` replaced by its expression, all at once."""
        if not any(s in values for s, _ in self.terms):
            return self
        result = Linear((), self.constant)
        for symbol, coefficient in self.terms:
            result = result + values.get(symbol, Linear.symbol(symbol)) * coefficient
        return result

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The number at a point; raises ``KeyError`` when a symbol has no value."""
        return self.constant + sum(c * values[s] for s, c in self.terms)

    def __str__(self) -> str:
        parts = [s if c == 1 else f"-{s}" if c == -1 else f"{c}*{s}" for s, c in self.terms]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts).replace("+ -", "- ")
