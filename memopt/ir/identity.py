"""Memoisation of pure functions of frozen objects, keyed by the identity of the arguments.

Why not ``functools.cache``: to hash an expression or a statement takes as long as most functions of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

MOST = 1 << 12  # results of one function that are kept; then all are dropped

Value = TypeVar("Value")
Arguments = ParamSpec("Arguments")


def by_identity(function: Callable[Arguments, Value]) -> Callable[Arguments, Value]:
    """``function`` with memoised results. Preconditions: it has no effects, and its arguments never change.

    The arguments are kept alive as long as their result is kept, so no other object can get their identity meanwhile.
    Calls with keyword arguments are not memoised.
    """
    known: dict[tuple[int, ...], tuple[tuple[object, ...], Value]] = {}

    @functools.wraps(function)
    def remembered(*arguments: Arguments.args, **named: Arguments.kwargs) -> Value:
        if named:
            return function(*arguments, **named)
        key = tuple(map(id, arguments))
        found = known.get(key)
        if found is None:
            if len(known) >= MOST:
                known.clear()
            found = known[key] = arguments, function(*arguments, **named)
        return found[1]

    return remembered
