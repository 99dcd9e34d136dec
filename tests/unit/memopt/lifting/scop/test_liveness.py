"""Opaque header values: dead, live, and bits that merely pass through."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.lifting.execution.executor import OuterLoop
from memopt.lifting.scop.liveness import iterations_left
from memopt.lifting.values.loop_tree import CarriedValue, LoopNode
from memopt.lifting.values.values import Atom, Carried, Final, Node, Truth, Value, constant

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


def around(shrinking: Linear, following: Value) -> OuterLoop:
    """xmm0 in a loop of five iterations, whose inner loop of ``shrinking`` iterations writes it."""
    fresh, left = Node("load", (), 64), Final("60", "xmm0.0")
    inner = LoopNode("c:60", shrinking, (), (CarriedValue("xmm0.0", Carried("50", "xmm0.0"), fresh),),
                     (("xmm0.0", fresh),), 0x60)
    middle = LoopNode("c:50", Linear.of(5), (inner,), (CarriedValue("xmm0.0", header("xmm0.0"), following),),
                      (("xmm0.0", left),), 0x50)
    whole = outer({"xmm0.0": Final("50", "xmm0.0")}, {"xmm0.0": Final("50", "xmm0.0")})
    return replace(whole, node=replace(whole.node, items=(middle,)),
                   ranges={"c:50": Linear.of(4), "c:60": shrinking - 1})


def test_what_the_first_iteration_of_an_inner_loop_overwrites_is_dead() -> None:
    """A triangle's inner loop does not run in the last row: what it left came from the row before."""
    assert iterations_left(around(-Linear.symbol("c:50") + 4, Final("60", "xmm0.0"))) == 1


def test_what_the_first_iteration_of_an_inner_loop_may_pass_on_is_seen() -> None:
    for rows in (Linear.symbol("rax") - Linear.symbol("c:50"), -Linear.symbol("c:50")):
        with pytest.raises(Rejected):
            iterations_left(around(rows, Final("60", "xmm0.0")))
    later = Truth(Atom(Linear.symbol("c:50") - 1, False), 1)
    passed = Node("select", (later, Final("60", "xmm0.0"), Carried("50", "xmm0.0")), 64)
    with pytest.raises(Rejected):
        iterations_left(around(-Linear.symbol("c:50") + 4, passed))
