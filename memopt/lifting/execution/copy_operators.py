"""The two operators of the models of memcpy and memset (memopt.cfg.library_models), as symbolic execution sees them.

``granule`` is the element size a copy is modelled with, ``forwards`` the demand that the destination of a copy does
not begin inside its source.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from memopt.cfg.library_models import GRANULES
from memopt.ir.linear import Linear
from memopt.lifting.values.algebra import Algebra
from memopt.lifting.values.values import Value, constant


def _granule(algebra: Algebra, operands: tuple[Linear, ...]) -> Value:
    """What divides the size whatever its symbols are, which are fixed where they would leave single bytes.

    0 in a trial, where only what registers hold afterwards is looked at: then there is no loop."""
    if algebra.trial:
        return constant(0, 64)
    size, = operands
    known = math.gcd(GRANULES[0], size.constant, *(c for _, c in size.terms))
    if known < 4 and not size.is_constant and algebra.settles(size):
        known = math.gcd(GRANULES[0], algebra.specialised(size).constant)
    return constant(known, 64)


def _forwards(algebra: Algebra, operands: tuple[Linear, ...]) -> Value:
    """True, once it is required: the destination begins before the source or behind it."""
    to, source, size = operands
    distance = to - source
    behind = algebra.at_sample(distance) > 0
    algebra.require(distance - size if behind else -distance, "a destination does not begin inside its source")
    return constant(1, 1)


ABOUT_COPIES: dict[str, Callable[[Algebra, tuple[Linear, ...]], Value]] = {
    "granule": _granule, "forwards": _forwards}
