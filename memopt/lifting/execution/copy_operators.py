"""Symbolic values of the two operators in the models of memcpy, memmove and memset (memopt.cfg.library_models).

A call ``memmove(d, s, n)`` is modelled as a loop over elements of g bytes::

    forwards(d, s, n); g = granule(n); for (i = 0; i < n; i += g) d[i..i+g] = s[i..i+g];

``granule`` is the element size: 8, 4, 2 or 1 bytes. ``forwards`` demands that d does not begin inside s .. s + n, so
that copying forwards gives what the function gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from memopt.cfg.library_models import GRANULES
from memopt.ir.linear import Linear
from memopt.lifting.values.algebra import Algebra
from memopt.lifting.values.values import Value, constant


def _granule(algebra: Algebra, operands: tuple[Linear, ...]) -> Value:
    """The largest of 8, 4, 2, 1 that divides the size for all values of its symbols.

    If that leaves less than 4 bytes, the size is specialised on its captured value. 0 in a trial, which looks only at
    registers afterwards: the model then has no loop.
    """
    if algebra.trial:
        return constant(0, 64)
    size, = operands
    known = math.gcd(GRANULES[0], size.constant, *(c for _, c in size.terms))
    if known < 4 and not size.is_constant and algebra.settles(size):
        known = math.gcd(GRANULES[0], algebra.specialised(size).constant)
    return constant(known, 64)


def _forwards(algebra: Algebra, operands: tuple[Linear, ...]) -> Value:
    """Requires that the destination begins in front of the source or behind its end, as it was captured. Returns 1."""
    to, source, size = operands
    distance = to - source
    behind = algebra.at_sample(distance) > 0
    algebra.require(distance - size if behind else -distance, "the destination of a copy does not begin in its source")
    return constant(1, 1)


COPY_OPERATORS: dict[str, Callable[[Algebra, tuple[Linear, ...]], Value]] = {
    "granule": _granule, "forwards": _forwards}
