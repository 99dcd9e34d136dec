"""Registers back to memory cells: hand-made nests, and the cells that must not be chosen."""

from __future__ import annotations

import re

import pytest

from memopt.analysis.algebra import Obligation
from memopt.analysis.aliasing import Aliasing
from memopt.analysis.canonical import canonical
from memopt.analysis.nest import CarriedValue, Guarded, Item, LoadEvent, LoopNode, StoreEvent
from memopt.analysis.recovery import recover
from memopt.analysis.values import Atom, Carried, Final, Integer, LiveVector, Loaded, Node, Truth, Value, constant
from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from tests.support.lifting import lift_assembly

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
    mirrored[:] = [*map(str, found.mirrors), *(f"{a.location} alone" for a in found.alone)]
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
    assert recovered(load(0, A), store(C, add(LiveVector("xmm7.1"), v(0)))) == ["  [c]:64 = add(xmm7[8], [a])"]
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


# -- types ----------------------------------------------------------------------------------------------------------


def choice(truth: Value, first: Value, second: Value) -> Node:
    """As SSE2 code makes it: a mask, and, andnot, or."""
    mask = Node("sext", (truth,), 64)
    inverse = Node("not", (mask,), 64)
    return Node("or", (Node("and", (mask, first), 64), Node("and", (inverse, second), 64)), 64)


def test_masks_are_choices() -> None:
    less = Node("fle", (v(0), v(1)), 1)
    assert recovered(load(0, A), load(1, B), store(C, choice(less, v(0), v(1)))) == [
        "  [c]:64 = select.i64(fle.i64([a], [b]), bits.i64([a]), bits.i64([b]))"]
    smaller = Node("flt", (v(1), v(0)), 1)
    assert recovered(load(0, A), load(1, B), store(C, choice(smaller, v(0), v(1)))) == ["  [c]:64 = max([a], [b])"]


def test_flags_of_a_comparison() -> None:
    """comisd a, b; cmova"""
    flags = Node("and", (Node("zext", (Node("fcompare", (v(0), v(1)), 32),), 64), Integer(Linear.of(0x45), 64)), 64)
    above = Node("eq", (Node("and", (flags, Integer(Linear.of(0x41), 64)), 64), Integer(Linear(), 64)), 1)
    picked = Node("select", (above, v(2), v(3)), 64)
    loads = (load(0, A), load(1, A + 8), load(2, B), load(3, B + 8))
    assert recovered(*loads, store(C, picked)) == [
        "  [c]:64 = select.i64(flt.i64([a + 8], [a]), [b], [b + 8])"]


@pytest.mark.parametrize(("shift", "kept", "number"), [
    *((0, bits, 0) for bits in (0x01, 0x04, 0x05, 0x40, 0x41, 0x44, 0x45)),
    (0, 0x40, 0x40), (0, 0x04, 0x04), (2, 1, 0), (2, 1, 1), (6, 1, 0), (6, 1, 1), (2, 0x10, 0x10)])
@pytest.mark.parametrize("quiet", ["fcompare", "fqcompare"])
def test_each_test_of_flags_is_a_comparison(quiet: str, shift: int, kept: int, number: int) -> None:
    """``comisd; jp`` and the like, for operands that are below, above, equal, or of which one is a NaN."""
    set_ = Node("zext", (Node("and", (Node(quiet, (v(0), v(1)), 32), constant(0x45, 32)), 32),), 64)
    moved = Node("shr", (set_, constant(shift, 8)), 64) if shift else set_
    found = canonical(Node("eq", (Node("and", (moved, constant(kept, 64)), 64), constant(number, 64)), 1))
    for flags in (0x45, 0x01, 0x00, 0x40):
        assert truth(found, flags) == ((flags >> shift) & kept == number), hex(flags)


def truth(value: Value, flags: int) -> bool:
    """``value``, of comparisons of v(0) and v(1), where they compare like ``flags``."""
    assert isinstance(value, Node)
    less = flags == (0x01 if value.operands[0] == v(0) else 0x00)
    match value.operator:
        case "not":
            return not truth(value.operands[0], flags)
        case "or":
            return truth(value.operands[0], flags) or truth(value.operands[1], flags)
        case "funord":
            return flags == 0x45
        case "flt" | "fqlt":
            return less
        case "fle" | "fqle":
            return less or flags == 0x40
    raise AssertionError(value)


def test_several_flags_that_are_not_all_0_are_no_comparison() -> None:
    flags = Node("and", (Node("fcompare", (v(0), v(1)), 32), constant(0x41, 32)), 32)
    assert "fcompare" in str(canonical(Node("eq", (flags, constant(0x01, 32)), 1)))


def test_narrow_integers() -> None:
    """unsigned bytes widened, multiplied, accumulated; a byte sum computed in 32 bits"""
    wide = tuple(Node("zext", (v(n, 8),), 32) for n in range(2))
    total = Node("add", (v(2, 32), Node("mul", wide, 32)), 32)
    assert recovered(load(0, A, 8), load(1, B, 8), load(2, C, 32), store(C, total, 32)) == [
        "  [c]:32 = add.i32([c], mul.i32(zext.i32([a]), zext.i32([b])))"]
    byte = Node("trunc", (Node("add", wide, 32),), 8)
    assert recovered(load(0, A, 8), load(1, B, 8), store(C, byte, 8)) == ["  [c]:8 = add.i8([a], [b])"]


def test_an_affine_condition_makes_two_statements() -> None:
    """for j: a[j] = i >= 2 j ? b : d, as a conditional move; what it compares must not wrap around"""
    least = Truth(Atom(H - J * 2, False, (H + 5,)), 1)
    body = loop("j", store(A + J * 8, Node("select", (least, v(0), v(1)), 64)))
    assert recovered(load(0, B), load(1, D), body)[1:] == [
        "    [a + 8*c:j]:64 = [b] if c:i - 2*c:j >= 0",
        "    [a + 8*c:j]:64 = [d] if -c:i + 2*c:j - 1 >= 0",
    ]
    assert "c:i + 5" in demands


def test_what_is_loaded_under_a_condition_is_used_under_it() -> None:
    """if (i >= 3) x = a; else x = b; c = x + x"""
    least = Truth(Atom(H - 3, False, ()), 1)
    items = (Guarded((H - 3,), (load(0, A),)), Guarded((-H + 2,), (load(1, B),)))
    chosen = Node("select", (least, v(0), v(1)), 64)
    assert recovered(*items, store(C, add(chosen, chosen))) == [
        "  [c]:64 = add([a], [a]) if c:i - 3 >= 0",
        "  [c]:64 = add([b], [b]) if -c:i + 2 >= 0",
    ]
    assert refused(*items, store(C, v(0))) is Reason.CARRIED_VALUE


def test_many_affine_conditions_are_comparisons() -> None:
    value: Value = v(0)
    for number in range(5):
        value = Node("select", (Truth(Atom(H - number, True, ()), 1), v(1), value), 64)
    (line,) = recovered(load(0, A), load(1, B), store(C, value))
    assert line.startswith("  [c]:64 = select.i64(eq.i64(i64(c:i - 4), 0x0), [b], select.i64(")


def test_a_product_of_64_bits_from_products_of_32() -> None:
    """As SSE2 code makes it, with pmuludq."""
    halves = [tuple(Node("zext", (Node(name, (v(n),), 32),), 64) for name in ("trunc", "high")) for n in range(2)]
    (low_a, high_a), (low_b, high_b) = halves
    crossed = Node("add", (Node("mul", (high_b, low_a), 64), Node("mul", (high_a, low_b), 64)), 64)
    moved = Node("shl", (crossed, Integer(Linear.of(32), 8)), 64)
    product = Node("add", (moved, Node("mul", (low_b, low_a), 64)), 64)
    assert recovered(load(0, A), load(1, B), store(C, product)) == ["  [c]:64 = mul.i64([a], [b])"]
    wrong = Node("add", (moved, Node("mul", (low_b, low_b), 64)), 64)
    assert "shl" in recovered(load(0, A), load(1, B), store(C, wrong))[0]


def test_a_double_changed_as_an_integer() -> None:
    mixed = Node("xor", (v(0), LiveVector("xmm1.0")), 64)
    assert recovered(load(0, A), store(C, add(mixed, mixed))) == [
        "  [c]:64 = add(xor([a], xmm1), xor([a], xmm1))"]


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


def _low(value: Value) -> Value:
    return Node("zext", (Node("trunc", (value,), 32),), 64)


def test_the_low_end_of_a_cell_is_cut_from_what_is_read() -> None:
    """c[i] = a[i] + (a[i] & 0xffffffff): not the same bits as another type."""
    value = Node("add", (v(1), _low(v(1))), 64)
    assert recovered(load(1, A + H * 8), store(C + H * 8, value)) == [
        "  [c + 8*c:i]:64 = add.i64([a + 8*c:i], zext.i64(trunc.i32([a + 8*c:i])))"]


def test_a_cell_is_not_read_in_two_widths() -> None:
    """c[i] = (a[i] & 0xffffffff) << 3 ^ a[i], where the narrow read comes first."""
    value = Node("xor", (Node("shl", (_low(v(1)), constant(3, 64)), 64), v(1)), 64)
    assert refused(load(1, A + H * 8), store(C + H * 8, value)) is Reason.UNSUPPORTED_INSTRUCTION


def test_a_part_that_starts_inside_a_byte_is_cut_from_what_is_held() -> None:
    """for j: s += a[j]; c[i] = (byte)(s >> 4), which is bits 4 to 11 of s"""
    total = Node("add", (Carried("j", "rax"), v(1)), 64)
    carried = (CarriedValue("rax", constant(0, 64), total),)
    body = loop("j", load(1, A + J * 8), carried=carried, finals=(("rax", total),))
    shifted = Node("trunc", (Node("shr", (Final("j", "rax"), constant(4, 8)), 64),), 8)
    assert recovered(body, store(C + H, shifted, 8))[-1] == (
        "  [c + c:i]:8 = trunc.i8(shr.i64(P0[i], 0x4))")


def test_a_byte_of_a_sum_in_a_register_is_cut_from_the_sum() -> None:
    """Bytes from 32 bits: the register is one number, with no cell for each of its bytes."""
    scop = lift_assembly("""
        pixel:  xor ecx, ecx
                xor edx, edx
                lea rsi, [rbx + r9]
        tap:    movzx eax, byte ptr [rsi + rdx]
                imul eax, dword ptr [r8 + rdx*4]
                add rdx, 1
                add ecx, eax
                cmp rdx, 50
                jne tap
                movzx eax, ch
                mov byte ptr [rdi + r9], al
                add r9, 1
                cmp r9, 101
                jne pixel
                ret
    """, {"r9": 0, "rbx": 0x200000, "rdi": 0x100000, "r8": 0x300000}).region.scop
    assert str(scop.statements[-1]).endswith("= trunc.i8(shr.i32(P0[i], 0x8))")
