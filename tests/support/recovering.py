"""Hand-made nests whose registers become memory cells, and the statements that recovery finds in them."""

from __future__ import annotations

import re

import pytest

from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.lifting.demotion.aliasing import Aliasing
from memopt.lifting.demotion.recover import recover
from memopt.lifting.values.algebra import Obligation
from memopt.lifting.values.loop_tree import CarriedValue, Item, LoadEvent, LoopNode, StoreEvent
from memopt.lifting.values.values import Loaded, Node, Value

H, J, K = (Linear.symbol(f"c:{name}") for name in "ijk")
A, B, C, D, S = (Linear.symbol(name) for name in "abcds")
TEN = Linear.of(10)


def add(left: Value, right: Value, width: int = 64) -> Node:
    return Node("fadd", (left, right), width)


def load(number: int, pointer: Linear, width: int = 64) -> LoadEvent:
    return LoadEvent(number, pointer, width, 0)


def store(pointer: Linear, value: Value, width: int = 64) -> StoreEvent:
    return StoreEvent(pointer, value, width, 0)


def v(number: int, width: int = 64) -> Loaded:
    return Loaded(number, width)


def loop(name: str, *items: Item, carried: tuple[CarriedValue, ...] = (),
         finals: tuple[tuple[str, Value], ...] = (), trips: Linear = TEN) -> LoopNode:
    return LoopNode(f"c:{name}", trips, items, carried, finals)


def recovered(*items: Item, carried: tuple[CarriedValue, ...] = (), inner: Linear = TEN) -> list[str]:
    """The statements inside the loop over i; private cells are written "P0[i, j]". ``asked``: which distances would
    have to be zero."""
    node = loop("i", *items, carried=carried, trips=Linear.symbol("R"))
    ranges = {"c:i": Linear.symbol("R") - 1, "c:j": inner - 1, "c:k": inner - 1}
    sample = {name: 10000 * n for n, name in enumerate(("a", "b", "c", "d", "s", "R"), 1)}
    demands.clear()
    asked.clear()
    obligations: list[Obligation] = []

    def always(distance: Linear, expected: int) -> bool:
        asked.append(distance - expected)
        return True

    found = recover(node, Aliasing(ranges, sample), obligations, always)
    mirrored[:] = [*map(str, found.memory_backed), *(f"{a.location} alone" for a in found.private_backed)]
    text = str(found.loop)
    demands.extend(str(o.linear) for o in obligations)
    return [_PRIVATE.sub(_private, line) for line in text.splitlines()[1:]]


demands: list[str] = []  # of the last recovery
asked: list[Linear] = []
mirrored: list[str] = []
_PRIVATE = re.compile(r"\[([^][]*\bp:(\d+)[^][]*)\]")


def _private(match: re.Match[str]) -> str:
    counters = sorted(re.findall(r"(\d+)\*c:(\w)", match[1]), key=lambda c: -int(c[0]))
    return f"P{match[2]}[{', '.join(name for _, name in counters)}]"


def refused(*items: Item, carried: tuple[CarriedValue, ...] = ()) -> Reason:
    with pytest.raises(Rejected) as found:
        recovered(*items, carried=carried)
    return found.value.reason
