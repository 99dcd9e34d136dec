"""Entry invariants: expressions over the live-in values that are the same whenever the patched header is reached.

Example: ``for (i = 0; i < n; i++, row += 800)``, patched while it runs. A version may be entered at any i, so the
captured address ``row`` cannot be a guard: the next entry has another one. R = n - i iterations remain, and R falls by
1 as row rises by 800, so ``row + 800*R`` is the same at every entry. That sum can be a guard.

In general R is ``numerator / divisor``, and a value that advances by ``step`` has the invariant
``divisor * value + step * numerator``. The counter of the exit test needs no equation of its own: it follows from R
(``by_trips``). Bounds and rows that depend on the current outer iteration can be compared exactly in this form.
"""

from __future__ import annotations

from dataclasses import dataclass

from memopt.ir.linear import Linear
from memopt.ir.scop import TRIPS
from memopt.lifting.execution.assumptions import Assumptions, slot_name
from memopt.lifting.execution.parameters import live_in


@dataclass(frozen=True, slots=True)
class EntryInvariants:
    """Entry invariants over the live-in symbols of ``assumptions``, for a patched loop with R = ``numerator /
    divisor``.

    ``steps``: location -> what one iteration of that loop adds to it.
    """

    assumptions: Assumptions
    steps: dict[str, int]
    numerator: Linear
    divisor: int

    def step(self, linear: Linear) -> int:
        """The advance of ``linear``, which is over live-in symbols, in one iteration of the patched loop."""
        return sum(c * self._step(s) for s, c in linear.terms)

    def _step(self, symbol: str) -> int:
        location = symbol = live_in(symbol)
        if symbol in self.assumptions.cells:
            address, width = self.assumptions.cells[symbol]
            offset = address - self.assumptions.symbol("rsp")
            location = slot_name(offset.constant, width) if offset.is_constant else ""
        return self.steps.get(location, 0)

    def moves(self, linear: Linear) -> frozenset[str]:
        """The symbols of ``linear`` that advance."""
        return frozenset(s for s in linear.symbols if s != TRIPS and self._step(s))

    def invariant(self, linear: Linear) -> Linear:
        """An expression with the same value at every entry; ``linear`` follows from it and R."""
        step = self.step(linear)
        return linear * self.divisor + self.numerator * step if step else linear

    def by_trips(self) -> dict[str, Linear]:
        """The exit test's counter as an expression in R: {symbol: expression}.

        Example: R = n - i gives {i: n - R}. Empty if no advancing symbol has a coefficient that divides all others.
        """
        for symbol, coefficient in self.numerator.terms:
            rest = Linear.symbol(TRIPS, self.divisor) - self.numerator.without(symbol)
            if self._step(symbol) and not any(n % coefficient for n in (rest.constant, *(c for _, c in rest.terms))):
                terms = tuple((s, c // coefficient) for s, c in rest.terms)
                return {symbol: Linear(terms, rest.constant // coefficient)}
        return {}
