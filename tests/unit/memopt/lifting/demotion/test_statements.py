"""Registers back to memory cells: hand-made nests, and the cells that must not be chosen."""

from __future__ import annotations

from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason
from memopt.lifting.values.loop_tree import CarriedValue, Guarded
from memopt.lifting.values.values import Atom, Carried, Final, Integer, LiveVector, Node, Truth
from tests.support.recovering import (
    A,
    B,
    C,
    D,
    H,
    J,
    K,
    add,
    asked,
    demands,
    load,
    loop,
    mirrored,
    recovered,
    refused,
    store,
    v,
)

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


def test_two_registers_may_point_at_one_cell() -> None:
    """t = a[0]; for j: c[j] = t; t = b[j + 1], where b is a, for all that is known of the captured entry."""
    first, last = load(0, A), load(1, B - 10000 + J * 8 + 8)
    body = loop("j", last, store(C + J * 8, X), carried=(CarriedValue("xmm0.0", v(0), v(1)),))
    recovered(first, body)
    assert set(asked) == {A - B + 10000}
    again = loop("j", load(1, A + J * 8 + 8), store(C + J * 8, X), carried=(CarriedValue("xmm0.0", v(0), v(1)),))
    assert recovered(first, again) == ["  for c:j < 10", "    [c + 8*c:j]:64 = [a + 8*c:j]"]
    assert not asked


def test_a_chain_of_sums_is_split_at_its_cell() -> None:
    items = (load(0, C), load(1, A), load(2, B), store(C, add(v(2), add(v(1), v(0)))))
    assert recovered(*items) == ["  [c]:64 = add([a], [c])", "  [c]:64 = add([b], [c])"]


def test_a_chain_is_not_split_when_its_other_operand_is_the_cell_too() -> None:
    items = (load(0, C), load(1, A), store(C, add(v(0), add(v(1), v(0)))))
    assert recovered(*items) == ["  [c]:64 = add([c], add([a], [c]))"]


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


def test_scalars_and_constants() -> None:
    items = (store(C, add(LiveVector("xmm7.0"), Integer(Linear.of(1), 64))),)
    assert recovered(*items) == ["  [c]:64 = add(xmm7, 0x1)"]
    assert recovered(load(0, A), store(C, add(LiveVector("xmm7.1"), v(0)))) == ["  [c]:64 = add(xmm7[8:16], [a])"]
    assert recovered(store(C, Integer(Linear.of(-1), 64))) == ["  [c]:64 = 0xffffffffffffffff"]


def test_counters_and_live_in_integers_as_numbers() -> None:
    """c = (double) (i + m), d = i"""
    number = Node("i32tof64", (Integer(H + Linear.symbol("m"), 32),), 64)
    assert recovered(store(C, number), store(D, Integer(H, 64))) == [
        "  [c]:64 = i32tof64(i32(c:i + m))",
        "  [d]:64 = i64(c:i)",
    ]


# -- values that no cell holds --------------------------------------------------------------------------------------


def test_a_value_whose_cell_is_overwritten_is_copied_when_it_is_loaded() -> None:
    items = (load(0, C), load(1, A), store(C, v(1)), store(D, add(v(0), v(1))))
    assert recovered(*items) == ["  P0[i]:64 = [c]", "  [c]:64 = [a]", "  [d]:64 = add(P0[i], [c])"]


def test_half_of_a_value_may_be_overwritten() -> None:
    items = (load(0, C, 64), load(1, A, 32), store(C + 4, v(1, 32), 32), store(D, v(0)))
    assert recovered(*items) == ["  P0[i]:64 = [c]", "  [c + 4]:32 = [a]", "  [d]:64 = P0[i]"]
    low = Node("trunc", (v(0),), 32)
    items = (load(0, C, 64), load(1, A, 32), store(C + 4, v(1, 32), 32), store(D, low, 32))
    assert recovered(*items) == ["  [c + 4]:32 = [a]", "  [d]:32 = [c]"]


def test_a_sum_whose_cell_the_loop_uses_has_a_private_cell() -> None:
    """for j: s += c[j]; c[5] = s: storing s at once would be seen."""
    body = loop("j", load(1, C + J * 8), carried=(CarriedValue("xmm0.0", v(0), SUM),), finals=(("xmm0.0", SUM),))
    assert recovered(load(0, D), body, store(C + 40, Final("j", "xmm0.0"))) == [
        "  P0[i]:64 = [d]",
        "  for c:j < 10",
        "    P0[i]:64 = add(P0[i], [c + 8*c:j])",
        "  [c + 40]:64 = P0[i]",
    ]


def test_a_sum_that_is_used_but_not_stored() -> None:
    """s = 0; for j: s += a[j]; for k: s += b[k]; c += s: one private cell for both loops."""
    zero = Integer(Linear.of(0), 64)
    one = loop("j", load(1, A + J * 8), carried=(CarriedValue("xmm0.0", zero, SUM),), finals=(("xmm0.0", SUM),))
    more = add(Carried("k", "xmm0.0"), v(2))
    two = loop("k", load(2, B + K * 8), carried=(CarriedValue("xmm0.0", Final("j", "xmm0.0"), more),),
               finals=(("xmm0.0", more),))
    assert recovered(one, two, load(3, C), store(C, add(v(3), Final("k", "xmm0.0")))) == [
        "  P0[i]:64 = 0x0",
        "  for c:j < 10",
        "    P0[i]:64 = add(P0[i], [a + 8*c:j])",
        "  for c:k < 10",
        "    P0[i]:64 = add(P0[i], [b + 8*c:k])",
        "  [c]:64 = add([c], P0[i])",
    ]


def test_sums_are_private_to_an_iteration_of_every_loop_around() -> None:
    inner = loop("k", load(1, A + K * 8), carried=(CarriedValue("xmm0.0", v(0), add(Carried("k", "xmm0.0"), v(1))),),
                 finals=(("xmm0.0", add(Carried("k", "xmm0.0"), v(1))),))
    outer = loop("j", load(0, D + J * 8), inner, load(2, C + J * 8),
                 store(C + J * 8, add(v(2), Final("k", "xmm0.0"))))
    assert recovered(outer)[1] == "    P0[i, j]:64 = [8*c:j + d]"


def test_two_registers_that_change_places() -> None:
    """for j: (x, y) = (y, x); a[j] = x: neither may overwrite the other before it has moved."""
    x, y = Carried("j", "xmm0.0"), Carried("j", "xmm1.0")
    carried = (CarriedValue("xmm0.0", v(0), y), CarriedValue("xmm1.0", v(1), x))
    body = loop("j", store(A + J * 8, add(x, x)), carried=carried)
    assert recovered(load(0, C), load(1, D), body) == [
        "  P0[i]:64 = [c]",
        "  P1[i]:64 = [d]",
        "  for c:j < 10",
        "    P2[i, j]:64 = P0[i]",
        "    [a + 8*c:j]:64 = add(P2[i, j], P2[i, j])",
        "    P0[i]:64 = P1[i]",
        "    P1[i]:64 = P2[i, j]",
    ]


def test_an_older_value_moves_before_it_is_overwritten() -> None:
    """for j: a[j] = x + y; x = y; y = b[j]"""
    x, y = Carried("j", "xmm0.0"), Carried("j", "xmm1.0")
    carried = (CarriedValue("xmm1.0", v(1), v(2)), CarriedValue("xmm0.0", v(0), y))
    body = loop("j", load(2, B + J * 8), store(A + J * 8, add(x, y)), carried=carried)
    assert recovered(load(0, C), load(1, D), body)[-3:] == [
        "    [a + 8*c:j]:64 = add(P1[i], P0[i])",
        "    P1[i]:64 = P0[i]",
        "    P0[i]:64 = [b + 8*c:j]",
    ]


def test_what_the_last_iteration_computes_is_kept_there() -> None:
    """for j: t = a[j] + a[j]; c = t"""
    twice = add(v(0), v(0))
    body = loop("j", load(0, A + J * 8), finals=(("xmm0.0", twice),))
    assert recovered(body, store(C, Final("j", "xmm0.0"))) == [
        "  for c:j < 10",
        "    P0[i]:64 = add([a + 8*c:j], [a + 8*c:j]) if c:j - 9 >= 0",
        "  [c]:64 = P0[i]",
    ]
    assert demands == ["9"]


def test_what_a_loop_leaves_behind_is_known_only_if_it_runs() -> None:
    """for j < i: x = a[j]; c = x: in the first iteration of i, x would be something else."""
    body = loop("j", load(0, A + J * 8), finals=(("xmm0.0", v(0)),), trips=H)
    assert recovered(body, store(C, Final("j", "xmm0.0")), inner=H)[-1] == "  [c]:64 = P0[i]"
    assert demands == ["c:i - 1"]  # which the region builder cannot prove
    summing = loop("j", load(1, A + J * 8), carried=(CarriedValue("xmm0.0", v(0), SUM),),
                   finals=(("xmm0.0", SUM),), trips=H)
    assert recovered(load(0, D + H * 8), summing, store(C + H * 8, Final("j", "xmm0.0")), inner=H) == [
        "  [c + 8*c:i]:64 = [8*c:i + d]",
        "  for c:j < c:i",
        "    [c + 8*c:i]:64 = add([c + 8*c:i], [a + 8*c:j])",
    ]
    assert demands == []


# -- conditions -----------------------------------------------------------------------------------------------------


def test_guarded_statements() -> None:
    """if i >= 3: c = a; d = c, whatever it holds."""
    guarded = Guarded((H - 3,), (load(0, A), store(C, v(0))))
    assert recovered(guarded, load(1, C), store(D, v(1))) == ["  [c]:64 = [a] if c:i - 3 >= 0", "  [d]:64 = [c]"]


def test_what_conditions_that_exclude_each_other_guard_is_left_out() -> None:
    """if i >= 3: { d = b; if i <= 1: c = a }: the way through both branches is never gone."""
    never = Guarded((-H + 1,), (load(0, A), store(C, v(0))))
    assert recovered(Guarded((H - 3,), (load(1, B), store(D, v(1)), never))) == ["  [d]:64 = [b] if c:i - 3 >= 0"]


def test_a_guarded_store_may_overwrite() -> None:
    items = (load(0, C), load(1, A), Guarded((H - 3,), (store(C, v(1)),)), store(D, v(0)))
    assert recovered(*items) == ["  P0[i]:64 = [c]", "  [c]:64 = [a] if c:i - 3 >= 0", "  [d]:64 = P0[i]"]


def test_what_a_guarded_store_does_not_overwrite_is_still_there() -> None:
    """c = a + a; if i >= 3: c = b + b; d = i >= 3 ? b + b : a + a"""
    first, second = add(v(0), v(0)), add(v(1), v(1))
    items = (load(0, A), store(C, first), load(1, B), Guarded((H - 3,), (store(C, second),)))
    for bound, expected in ((3, ["  [d]:64 = [c]"]), (2, [
            "  [d]:64 = add([b], [b]) if c:i - 2 >= 0", "  [d]:64 = [c] if -c:i + 1 >= 0"])):
        chosen = Node("select", (Truth(Atom(H - bound, False, ()), 1), second, first), 64)
        assert recovered(*items, store(D, chosen))[2:] == expected


OUTER, LAST = Carried("i", "xmm0.0"), LiveVector("xmm0.0")


def test_what_the_outermost_loop_carries_is_read_from_the_cell_it_was_stored_to() -> None:
    """for i: s = s + a[i]; c[i] = s"""
    following = add(OUTER, v(1))
    assert recovered(load(1, A + H * 8), store(C + H * 8, following),
                     carried=(CarriedValue("xmm0.0", LAST, following),)) == [
        "  [c + 8*c:i]:64 = add([c + 8*c:i - 8], [a + 8*c:i])"]
    assert mirrored == ["xmm0[0:8] is [8*H + c - 8]:8, in the page of [c]"]


def test_a_register_may_take_over_what_another_one_held() -> None:
    """for i: t = s; s = a[i]; b[i] = t + u; u = t"""
    before = Carried("i", "xmm1.0")
    assert recovered(load(1, A + H * 8), store(B + H * 8, add(OUTER, before)),
                     carried=(CarriedValue("xmm0.0", LAST, v(1)),
                              CarriedValue("xmm1.0", LiveVector("xmm1.0"), OUTER))) == [
        "  [b + 8*c:i]:64 = add([a + 8*c:i - 8], [a + 8*c:i - 16])"]
    assert mirrored == ["xmm0[0:8] is [8*H + a - 8]:8, in the page of [a]",
                        "xmm1[0:8] is [8*H + a - 16]:8, in the page of [a]"]


def test_a_cell_that_is_overwritten_before_the_next_iteration_is_no_mirror() -> None:
    following = add(OUTER, v(1))
    assert recovered(load(1, A + H * 8), store(C + H * 8, following), load(2, D + H * 8), store(C + H * 8, v(2)),
                     carried=(CarriedValue("xmm0.0", LAST, following),)) == [
        "  [c + 8*c:i]:64 = add(P0[], [a + 8*c:i])", "  [c + 8*c:i]:64 = [8*c:i + d]",
        "  P0[]:64 = add(P0[], [a + 8*c:i])"]
    assert mirrored == ["xmm0[0:8] alone"]


def test_a_value_in_no_cell_gets_a_private_one() -> None:
    """for i: s = s + a[i]; c[i] = s + s"""
    following = add(OUTER, v(1))
    assert recovered(load(1, A + H * 8), store(C + H * 8, add(following, following)),
                     carried=(CarriedValue("xmm0.0", LAST, following),)) == [
        "  [c + 8*c:i]:64 = add(add(P0[], [a + 8*c:i]), add(P0[], [a + 8*c:i]))",
        "  P0[]:64 = add(P0[], [a + 8*c:i])"]
    assert mirrored == ["xmm0[0:8] alone"]


def test_a_mirror_that_is_overwritten_before_it_is_used_is_replaced() -> None:
    """for i: y[i] = 0; z[i] = s; s = y[i+1], where y[i] is what s holds."""
    zero = Integer(Linear(), 64)
    assert recovered(store(A + H * 8, zero), store(C + H * 8, OUTER), load(1, A + H * 8 + 8),
                     carried=(CarriedValue("xmm0.0", LAST, v(1)),)) == [
        "  [a + 8*c:i]:64 = 0x0", "  [c + 8*c:i]:64 = P0[]", "  P0[]:64 = [a + 8*c:i + 8]"]
    assert mirrored == ["xmm0[0:8] alone"]


def test_flags_and_upper_halves_are_not_mirrored() -> None:
    for location in ("cc_dep1", "xmm0.2", "slot:8:64"):
        held = Carried("i", location)
        following = add(held, v(1))
        assert refused(load(1, A + H * 8), store(C + H * 8, following), carried=(
            CarriedValue(location, LAST, following),)) is Reason.CARRIED_VALUE
