"""Statements of a lifted nest, run for the cells that they touch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from memopt.lifting.demotion.statements import CellStatement, StatementItem


def executed(item: StatementItem, values: Mapping[str, int]) -> Iterator[tuple[int, ...]]:
    """The addresses of each instance whose conditions hold, in the order of execution; ``values`` of all symbols."""
    if isinstance(item, CellStatement):
        if all(c.evaluate(values) >= 0 for c in item.conditions):
            yield tuple(a.evaluate(values) for a in item.accesses)
        return
    for number in range(item.trips.evaluate(values)):
        for inner in item.items:
            yield from executed(inner, {**values, item.counter: number})
