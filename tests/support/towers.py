"""Values that share their parts."""

from __future__ import annotations

from memopt.lifting.values.values import (
    Node,
    Value,
)


def tower(operator: str, base: Value, height: int) -> Value:
    """As a tree of 2**height leaves; as an object, one node a floor."""
    for _ in range(height):
        base = Node(operator, (base, base), base.width)
    return base
