"""Entry invariants: expressions over the live-in values that are the same whenever the patched header is reached.

Example: ``for (i = 0; i < n; i++, row += 800)``, patched while it runs. A version may be entered at any i, so the
captured address ``row`` cannot be a guard: the next entry has another one. R = n - i iterations remain, and R falls by
1 as row rises by 800, so ``row + 800*R`` is the same at every entry. That sum can be a guard.

In general R is ``numerator / divisor``, and a value that advances by ``step`` has the invariant
``divisor * value + step * numerator``; once live-in values are related to R (memopt.lifting.values.requests), it is
``value + step * R``. The counter of the exit test needs no equation of its own: it follows from R (``by_trips``).
Bounds and rows that depend on the current outer iteration can be compared exactly in this form.
"""

from __future__ import annotations

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.ir.region import Trips
from memopt.ir.scop import TRIPS
from memopt.lifting.execution.assumptions import Assumptions, Step, counted_down


@dataclass(frozen=True, slots=True)
class EntryInvariants:
    """Entry invariants over the live-in symbols of ``assumptions``, for a patched loop with R = ``numerator /
    divisor``.

    ``steps``: location -> what one iteration of that loop adds to it.
    """

    assumptions: Assumptions
    steps: dict[str, Step]
    numerator: Linear
    divisor: int

    def step(self, linear: Linear) -> int:
        """The advance of ``linear``, which is over live-in symbols, in one iteration of the patched loop."""
        return self.assumptions.step(linear, self.steps)

    def moves(self, linear: Linear) -> frozenset[str]:
        """The symbols of ``linear`` that advance."""
        return frozenset(s for s in linear.symbols if s != TRIPS and self.assumptions.advance(
            Linear.symbol(s), self.steps) != Linear())

    def invariant(self, linear: Linear) -> Linear:
        """An expression with the same value at every entry; ``linear`` follows from it and R."""
        step = self.step(linear)
        if self.assumptions.trips is not None:
            return linear + Linear.symbol(TRIPS, step)
        return linear * self.divisor + self.numerator * step if step else linear

    def evenly(self, linear: Linear, step: int) -> bool:
        """Whether ``step`` divides ``linear``, but for a number, once its invariant is taken for a number."""
        return not any(c * self.step(linear) % (self.divisor * step) for _, c in self.numerator.terms)

    def by_trips(self) -> dict[str, Linear]:
        """The exit test's counter as an expression in R: {symbol: expression}.

        Example: R = n - i gives {i: n - R}. Empty if no advancing symbol has a coefficient that divides all others.
        """
        return counted_down(Trips(self.numerator, self.divisor), lambda symbol: self.step(Linear.symbol(symbol)))
