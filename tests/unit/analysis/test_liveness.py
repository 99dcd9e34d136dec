"""Opaque header values: dead, live, and bits that merely pass through."""

from __future__ import annotations

import pytest

from memopt.analysis.execute import OuterLoop
from memopt.analysis.liveness import iterations_left
from memopt.analysis.nest import CarriedValue, LoopNode
from memopt.analysis.values import Carried, Node, Truth, Value, constant
from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected

LOOP = "40"
LOW_BYTE_FREE = constant(~0xFF, 64)


def header(location: str) -> Carried:
    return Carried(LOOP, location)


def with_low_byte(value: Value) -> Value:
    """What ``setb`` leaves: a new low byte, the other bits of ``value``."""
    return Node("or", (Node("and", (value, LOW_BYTE_FREE), 64), Truth(True, 64)), 64)


def outer(following: dict[str, Value], exit_state: dict[str, Value]) -> OuterLoop:
    carried = tuple(CarriedValue(place, constant(0, 64), value) for place, value in following.items())
    node = LoopNode("c:40", Linear.symbol("R"), (), carried, (), 0x40)
    return OuterLoop(node, {}, frozenset(following), Linear.of(9), 1, {"cc_op": constant(7, 64), **exit_state}, (), 64,
                     {}, frozenset(), False)


def test_an_overwritten_register_is_dead() -> None:
    iterations_left(outer({"rax": header("rcx")}, {"rax": constant(1, 64)}))


def test_a_header_value_seen_after_the_loop_is_refused() -> None:
    with pytest.raises(Rejected) as refused:
        iterations_left(outer({"rax": Node("mul", (header("rax"), header("rax")), 64)}, {"rax": header("rax")}))
    assert refused.value.reason is Reason.CARRIED_VALUE


def test_upper_bits_that_no_iteration_changes_are_steady() -> None:
    passed = with_low_byte(header("r11"))
    iterations_left(outer({"r11": passed}, {"r11": passed}))


def test_bits_that_wander_between_registers_are_not_steady() -> None:
    swapped = {"r10": with_low_byte(header("r11")), "r11": with_low_byte(header("r10"))}
    with pytest.raises(Rejected):
        iterations_left(outer(swapped, {"r10": swapped["r10"]}))


def test_bits_that_an_iteration_rewrites_are_not_steady() -> None:
    wide = Node("or", (Node("and", (header("r11"), LOW_BYTE_FREE), 64), Node("zext", (Node("load", (), 32),), 64)), 64)
    with pytest.raises(Rejected):
        iterations_left(outer({"r11": wide}, {"r11": with_low_byte(header("r11"))}))
