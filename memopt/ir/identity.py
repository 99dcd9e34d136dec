"""Values of pure functions of frozen objects, remembered by which objects they are: hashing an expression or a
statement takes as long as most of what is asked about it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

MOST = 1 << 12  # values of one function that are remembered

Value = TypeVar("Value")
Arguments = ParamSpec("Arguments")


def by_identity(function: Callable[Arguments, Value]) -> Callable[Arguments, Value]:
    """Preconditions: ``function`` has no effects, and its arguments never change. They are kept alive as long as they
    are remembered, so that no other object can have their identity meanwhile; calls with names are not remembered."""
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
