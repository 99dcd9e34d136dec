"""An algebra of symbolic values with a few known symbols: x, the counter c:1 and the address p."""

from __future__ import annotations

from memopt.ir.linear import Linear
from memopt.lifting.values.algebra import Algebra
from memopt.lifting.values.values import constant

X = Linear.symbol("x")


def algebra(x: int = 5) -> Algebra:
    return Algebra({"x": x, "c:1": 0, "p": 0x1000}, lambda event: Linear.symbol("p" if event else "c:1"),
                   lambda *_: constant(0, 1))
