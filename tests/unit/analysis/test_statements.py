"""Registers back to memory cells: hand-made nests, and the cells that must not be chosen."""

from __future__ import annotations

import pytest

from memopt.analysis.aliasing import Aliasing
from memopt.analysis.nest import CarriedValue, Item, LoadEvent, LoopNode, StoreEvent
from memopt.analysis.statements import recover
from memopt.analysis.values import Carried, Final, Integer, LiveVector, Loaded, Node, Value
from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected

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


def recovered(*items: Item, cells: dict[str, tuple[Linear, int]] | None = None) -> list[str]:
    node = loop("i", *items, trips=Linear.symbol("R"))
    ranges = {"c:i": Linear.symbol("R") - 1, "c:j": TEN - 1, "c:k": TEN - 1}
    sample = {name: 10000 * n for n, name in enumerate(("a", "b", "c", "d", "s", "R"), 1)}
    return str(recover(node, Aliasing(ranges, sample), cells or {})).splitlines()[1:]


def refused(*items: Item, cells: dict[str, tuple[Linear, int]] | None = None) -> Reason:
    with pytest.raises(Rejected) as found:
        recovered(*items, cells=cells)
    return found.value.reason


X = Carried("j", "xmm0.0")
SUM = add(X, v(1))


def test_a_sum_in_a_register_lives_in_the_cell_it_is_stored_to_afterwards() -> None:
    """s = d[i]; for j: s += a[j]; c[i] = s"""
    body = loop("j", load(1, A + J * 8), carried=(CarriedValue("xmm0.0", v(0), SUM),), finals=(("xmm0.0", SUM),))
    assert recovered(load(0, D + H * 8), body, store(C + H * 8, Final("j", "xmm0.0"))) == [
        "  [c + 8*c:i]:64 = [8*c:i + d]",
        "  for c:j < 10",
        "    [c + 8*c:i]:64 = add([c + 8*c:i], [a + 8*c:j])",
    ]


def test_a_sum_that_starts_from_its_own_cell_needs_no_first_store() -> None:
    body = loop("j", load(1, A + J * 8), carried=(CarriedValue("xmm0.0", v(0), SUM),), finals=(("xmm0.0", SUM),))
    assert recovered(load(0, C + H * 8), body, store(C + H * 8, Final("j", "xmm0.0"))) == [
        "  for c:j < 10",
        "    [c + 8*c:i]:64 = add([c + 8*c:i], [a + 8*c:j])",
    ]


def test_a_register_that_the_loop_stores_itself() -> None:
    """for j: s = s + a[j]; c[j+1] = s, with s = c[0] at first: a recurrence through memory."""
    body = loop("j", load(1, A + J * 8), store(C + J * 8 + 8, SUM), carried=(CarriedValue("xmm0.0", v(0), SUM),))
    assert recovered(load(0, C), body) == [
        "  for c:j < 10",
        "    [c + 8*c:j + 8]:64 = add([c + 8*c:j], [a + 8*c:j])",
    ]


def test_a_chain_of_sums_is_split_at_its_cell() -> None:
    items = (load(0, C), load(1, A), load(2, B), store(C, add(v(2), add(v(1), v(0)))))
    assert recovered(*items) == ["  [c]:64 = add([a], [c])", "  [c]:64 = add([b], [c])"]


def test_a_chain_is_not_split_when_its_other_operand_is_the_cell_too() -> None:
    items = (load(0, C), load(1, A), store(C, add(v(0), add(v(1), v(0)))))
    assert recovered(*items) == ["  [c]:64 = add([c], add([a], [c]))"]


def test_a_scalar_and_a_constant() -> None:
    items = (store(C, add(LiveVector("xmm7.0"), Integer(Linear.of(1), 64))),)
    assert recovered(*items) == ["  [c]:64 = add(xmm7, 0x1)"]
    assert refused(store(C, add(LiveVector("xmm7.1"), v(0)))) is Reason.CARRIED_VALUE


def test_a_value_whose_cell_was_overwritten_has_no_cell() -> None:
    assert refused(load(0, C), load(1, A), store(C, v(1)), store(D, add(v(0), v(1)))) is Reason.CARRIED_VALUE
    assert refused(load(0, C, 64), load(1, A), store(C + 4, v(2, 32), 32), store(D, v(0))) is Reason.CARRIED_VALUE


def test_a_loop_that_uses_the_cell_of_its_sum_is_refused() -> None:
    """for j: s += c[j]; c[5] = s: storing s at once would be seen."""
    body = loop("j", load(1, C + J * 8), carried=(CarriedValue("xmm0.0", v(0), SUM),), finals=(("xmm0.0", SUM),))
    assert refused(load(0, D), body, store(C + 40, Final("j", "xmm0.0"))) is Reason.CARRIED_VALUE


def test_two_registers_cannot_live_in_one_cell() -> None:
    """Both become a[j] each time, but they start from different cells; c = s + t holds either in the end."""
    carried = (CarriedValue("xmm0.0", v(0), v(1)), CarriedValue("xmm1.0", v(2), v(1)))
    body = loop("j", load(1, A + J * 8), store(S + J * 8, add(X, Carried("j", "xmm1.0"))), carried=carried,
                finals=(("xmm0.0", v(1)), ("xmm1.0", v(1))))
    after = store(C, add(Final("j", "xmm0.0"), Final("j", "xmm1.0")))
    assert refused(load(0, D), load(2, D + 8), body, after) is Reason.CARRIED_VALUE


def test_a_cell_that_a_later_loop_reads_is_no_home() -> None:
    """s = sum of a; then b[j+1] = s += a[j] while d[j] = old b[0]; then b[0] = s."""
    first = loop("j", load(1, A + J * 8), carried=(CarriedValue("xmm0.0", v(0), SUM),), finals=(("xmm0.0", SUM),))
    onwards = add(Carried("k", "xmm0.0"), v(2))
    second = loop("k", load(2, A + K * 8), load(3, B), store(D + K * 8, v(3)), store(B + K * 8 + 8, onwards),
                  carried=(CarriedValue("xmm0.0", Final("j", "xmm0.0"), onwards),), finals=(("xmm0.0", onwards),))
    assert refused(load(0, S), first, second, store(B, Final("k", "xmm0.0"))) is Reason.CARRIED_VALUE


def test_a_live_in_cell_is_read_in_its_own_width() -> None:
    cells = {"m": (A, 32)}
    value = Integer(Linear.symbol("m"), 32)
    assert recovered(store(C, value, 32), cells=cells) == ["  [c]:32 = [a]"]
    assert refused(store(C, Integer(Linear.symbol("m"), 64)), cells=cells) is Reason.CARRIED_VALUE


def test_a_cell_stored_back_must_be_one_that_other_arrays_are_kept_away_from() -> None:
    """t = *a; *b = x; *a = t: nothing happens to a, unless b is the same cell."""
    assert refused(load(0, A), load(1, C), store(B, v(1)), store(A, v(0))) is Reason.OVERLAP
    assert recovered(load(0, A), load(1, C), store(A, v(0)), store(B, add(v(0), v(1)))) == ["  [b]:64 = add([a], [c])"]


def test_packed_halves_are_cells_of_their_own() -> None:
    low = Node("trunc", (v(0),), 32)
    high = Node("high", (v(0),), 32)
    packed = Node("concat", (add(high, high, 32), add(low, low, 32)), 64)
    halves = ["  [a]:32 = add.f32([a], [a])", "  [a + 4]:32 = add.f32([a + 4], [a + 4])"]
    assert recovered(load(0, A), store(A, packed)) == halves


def test_an_integer_operation_is_no_statement() -> None:
    mixed = Node("xor", (v(0), LiveVector("xmm1.0")), 64)
    assert refused(load(0, A), store(C, mixed)) is Reason.UNSUPPORTED_INSTRUCTION
