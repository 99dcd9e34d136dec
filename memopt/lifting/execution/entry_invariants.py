"""Live-in values that advance with the patched loop, expressed by the number of iterations that remain.

A value that advances by ``step`` while ``R = numerator / divisor`` falls by one is, at every entry, what it will be
in the end minus ``step * R``: ``divisor * value + step * numerator`` is the same whenever the header is reached. That
sum may be specialised on, the value itself may not. The counter of the exit test needs no such equation: it follows
from R alone. Expressed like this, bounds and rows that depend on the current iteration are compared exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

from memopt.ir.linear import Linear
from memopt.ir.scop import TRIPS
from memopt.lifting.execution.assumptions import Assumptions, slot_name
from memopt.lifting.execution.parameters import live_in


@dataclass(frozen=True, slots=True)
class EntryInvariants:
    """Over the live-in symbols of ``facts``; ``steps`` are those of the patched loop's locations."""

    facts: Assumptions
    steps: dict[str, int]
    numerator: Linear
    divisor: int

    def step(self, linear: Linear) -> int:
        """What one iteration of the patched loop adds to ``linear`` over live-in symbols."""
        return sum(c * self._step(s) for s, c in linear.terms)

    def _step(self, symbol: str) -> int:
        location = symbol = live_in(symbol)
        if symbol in self.facts.cells:
            address, width = self.facts.cells[symbol]
            offset = address - self.facts.symbol("rsp")
            location = slot_name(offset.constant, width) if offset.is_constant else ""
        return self.steps.get(location, 0)

    def moves(self, linear: Linear) -> frozenset[str]:
        """The symbols of ``linear`` that advance."""
        return frozenset(s for s in linear.symbols if s != TRIPS and self._step(s))

    def invariant(self, linear: Linear) -> Linear:
        """What is the same at every entry, and ``linear`` follows from it and R."""
        step = self.step(linear)
        return linear * self.divisor + self.numerator * step if step else linear

    def by_trips(self) -> dict[str, Linear]:
        """The exit test's counter by R; empty when there is none whose coefficient divides everything else."""
        for symbol, coefficient in self.numerator.terms:
            rest = Linear.symbol(TRIPS, self.divisor) - self.numerator.without(symbol)
            if self._step(symbol) and not any(n % coefficient for n in (rest.constant, *(c for _, c in rest.terms))):
                terms = tuple((s, c // coefficient) for s, c in rest.terms)
                return {symbol: Linear(terms, rest.constant // coefficient)}
        return {}
