"""Branches on data in small assembled loops: what becomes a choice of what is stored, and what is refused."""

from __future__ import annotations

import struct

import pytest

from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Footprint, Interval, Region, Relation, confined
from memopt.lifting.lift import Lifted
from tests.support.lifting import lift_assembly

A, B, C = 0x10000, 0x20000, 0x30000
REGISTERS = {"r8": 10, "rbx": 1, "rdi": A, "rsi": B, "r9": C}
LOADS = "movsd xmm0, [rdi+rbx*8]; movsd xmm1, [rsi+rbx*8]"
FILL = "k: mov [rdi+rcx*8], rdx; inc rcx; cmp rcx, 4; jne k"
INTEGERS = "mov rax, [rdi+rbx*8]; mov rdx, [rsi+rbx*8]"


def lift(body: str, after: str = "") -> Lifted:
    return lift_assembly(f"xor ebx, ebx\ni: {body}\nnext: inc rbx; cmp rbx, r8; jne i\n{after}\nret", REGISTERS)


def statements(body: str) -> list[str]:
    return [str(s).partition(": ")[2] for s in lift(body).region.scop.statements]


@pytest.mark.parametrize(("jump", "chosen"), [
    ("jbe", "max(A1[i], A0[i])"),  # stored when b > a
    ("jae", "select(fle.i64(A0[i], A1[i]), A0[i], A1[i])"),  # when b < a or unordered
    ("ja", "min(A0[i], A1[i])"),  # when b <= a or unordered
    ("jb", "select(fle.i64(A0[i], A1[i]), A1[i], A0[i])"),
    ("jp", "select(funord.i64(A1[i], A0[i]), A0[i], A1[i])"),
])
def test_a_conditional_store_keeps_what_the_cell_holds(jump: str, chosen: str) -> None:
    compare = "ucomisd" if jump == "jp" else "comisd"
    assert statements(f"{LOADS}; {compare} xmm1, xmm0; {jump} next; movsd [rdi+rbx*8], xmm1") == [f"A0[i] = {chosen}"]


@pytest.mark.parametrize(("jump", "chosen"), [
    ("jge", "smin"), ("jg", "smin"), ("jle", "smax"), ("jl", "smax"),
    ("jae", "umin"), ("ja", "umin"), ("jbe", "umax"), ("jb", "umax"),
])
def test_integers_compare_with_and_without_sign(jump: str, chosen: str) -> None:
    found, = statements(f"{INTEGERS}; cmp rdx, rax; {jump} next; mov [rdi+rbx*8], rdx")
    assert found in (f"A0[i] = {chosen}.i64(A1[i], A0[i])", f"A0[i] = {chosen}.i64(A0[i], A1[i])")


def test_both_ways_store_to_one_cell() -> None:
    body = f"{INTEGERS}; cmp rdx, 7; je other; mov [r9+rbx*8], rdx; jmp next; other: mov [r9+rbx*8], rax"
    assert statements(body) == ["A0[i] = select.i64(eq.i64(A1[i], 0x7), A2[i], A1[i])"]


def test_the_ways_store_to_different_cells() -> None:
    body = f"{INTEGERS}; cmp rdx, 7; je other; mov [r9+rbx*8], rdx; jmp next; other: mov [rsi+rbx*8+8], rax"
    assert statements(body) == ["A0[i + 1] = select.i64(eq.i64(A0[i], 0x7), A1[i], A0[i + 1])",
                                "A2[i] = select.i64(eq.i64(A0[i], 0x7), A2[i], A0[i])"]


def test_what_a_way_overwrites_decides_no_more() -> None:
    """if (b > a) c = a; else a = b: what is compared is still needed after the first store"""
    body = f"{INTEGERS}; cmp rdx, rax; jle other; mov [r9+rbx*8], rax; jmp next; other: mov [rdi+rbx*8], rdx"
    first, second, third = statements(body)
    assert first == "P0[i] = A0[i]"
    assert second == "A0[i] = smin.i64(A1[i], A0[i])"
    assert third == "A2[i] = select.i64(sle.i64(A1[i], P0[i]), A2[i], P0[i])"


def test_choices_inside_choices() -> None:
    body = f"{INTEGERS}; cmp rdx, rax; jle next; cmp rax, 5; jne next; mov [rdi+rbx*8], rdx"
    assert statements(body) == [
        "A0[i] = select.i64(sle.i64(A1[i], A0[i]), A0[i], select.i64(eq.i64(A0[i], 0x5), A1[i], A0[i]))"]


def test_a_register_is_chosen() -> None:
    body = f"{INTEGERS}; cmp rdx, 3; jb skip; mov rdx, rax; skip: mov [r9+rbx*8], rdx"
    assert statements(body) == ["A0[i] = select.i64(ule.i64(0x3, A1[i]), A2[i], A1[i])"]


def test_what_may_be_passed_over_lies_in_memory_that_was_looked_at() -> None:
    region = lift(f"{LOADS}; comisd xmm1, xmm0; jbe next; movsd [rdi+rbx*8], xmm1").region
    assert region.speculative_accesses
    assert region.confined
    footprint = Footprint("A1", Interval(Linear.symbol("rsi"), Linear.symbol("rsi") + 80), False)
    guards = confined(region, {footprint: (B, B + 4096)}).guards[len(region.guards):]
    assert [str(g) for g in guards if isinstance(g, Relation)] == [f"rsi - {B} >= 0", f"-rsi + {B + 4096 - 80} >= 0"]
    plain = lift(f"{LOADS}; addsd xmm1, xmm0; movsd [rdi+rbx*8], xmm1").region
    assert not plain.speculative_accesses
    assert not plain.confined


@pytest.mark.parametrize(("reason", "body"), [
    (Reason.DATA_DEPENDENT_BRANCH, f"{INTEGERS}; cmp rdx, rax; jle next; cmp rax, 5; je out; mov [rdi+rbx*8], rdx"),
    (Reason.DATA_DEPENDENT_BRANCH, f"{INTEGERS}; cmp rdx, 5; jle next; xor ecx, ecx; {FILL}"),
    (Reason.DATA_DEPENDENT_ADDRESS, f"{INTEGERS}; cmp rdx, rax; jle next; mov [r9+r10*8], rdx; inc r10"),
    (Reason.DATA_DEPENDENT_BRANCH, INTEGERS + "".join(
        f"; cmp rdx, {n}; jle skip{n}; mov [r9+rbx*8], rdx; skip{n}: inc rdx" for n in range(9))),
])
def test_refusals(reason: Reason, body: str) -> None:
    with pytest.raises(Rejected) as refused:
        lift(body, "out:")
    assert refused.value.reason is reason


def test_an_unordered_comparison_stays_quiet() -> None:
    """ucomisd raises nothing for a quiet NaN: minsd, maxsd and the plain comparisons do."""
    compared = f"{LOADS}; ucomisd xmm1, xmm0; jbe next; movsd [rdi+rbx*8], xmm1"
    assert statements(compared) == ["A0[i] = select(fqlt.i64(A0[i], A1[i]), A1[i], A0[i])"]
    compared = f"{LOADS}; ucomisd xmm1, xmm0; jae next; movsd [rdi+rbx*8], xmm1"
    assert statements(compared) == ["A0[i] = select(fqle.i64(A0[i], A1[i]), A0[i], A1[i])"]


ONE = f"{0x3FF0000000000000:#x}"
CLAMP = "movsd xmm0, [rdi+rbx*8]; {} xmm0, xmm2; jb low; movapd xmm1, xmm0; {}; jmp n; low: movapd xmm1, xmm2; n:"


def clamped(first: str = "comisd", second: str = "minsd xmm1, xmm3", high: float = 1.0) -> Region:
    """a[i] = a[i] < -1 ? -1 : min(a[i], high)"""
    body = CLAMP.format(first, second) + " movsd [rdi+rbx*8], xmm1"
    vectors = {name: struct.pack("<4d", number, 0, 0, 0) for name, number in (("xmm2", -1.0), ("xmm3", high))}
    text = f"xor ebx, ebx; i: {body}; inc rbx; cmp rbx, r8; jne i; ret"
    return lift_assembly(text, REGISTERS, vectors=vectors).region


def test_what_is_compared_in_any_case_may_be_compared_once_more() -> None:
    region = clamped()
    statement, = region.scop.statements
    assert "min(A0[i], xmm3" in str(statement)
    assert any("xmm3" in str(guard) for guard in region.guards)  # it holds the number that is no NaN


@pytest.mark.parametrize(("first", "second", "high"), [
    ("ucomisd", "minsd xmm1, xmm3", 1.0),  # a NaN would be signalled by the second one alone
    ("comisd", "minsd xmm1, xmm4", 1.0),  # not known
    ("comisd", "minsd xmm1, xmm3", float("nan")),
    ("comisd", "minsd xmm1, xmm3", 5e-324),
    ("comisd", "addsd xmm1, xmm3", 1.0),
])
def test_other_operations_of_one_way_would_raise_flags(first: str, second: str, high: float) -> None:
    """So they are done on ones where the way is not gone."""
    statement, = clamped(first, second, high).scop.statements
    way = f"f{'q' if first == 'ucomisd' else ''}le.i64(xmm2, A0[i])"
    name, register = second[:3], second[-4:]
    assert str(statement).partition(": ")[2] == (
        f"A0[i] = select({way}, {name}(select({way}, A0[i], {ONE}), select({way}, {register}, {ONE})), xmm2)")


def test_a_number_compared_with_one_that_may_be_a_nan_is_compared_on_ones() -> None:
    """Beside a NaN, a denormal operand raises no flag; the second comparison alone would raise it."""
    body = (f"{LOADS}; movsd xmm3, [r9+rbx*8]; comisd xmm3, xmm0; comisd xmm1, xmm0; jbe next; {{}}\n"
            "movsd [rdi+rbx*8], xmm1")
    one, other = (statements(body.format(again)) for again in ("comisd xmm1, xmm0", "comisd xmm1, xmm3"))
    assert ONE not in "".join(one)
    assert ONE in "".join(other)


def test_one_times_a_number_is_that_number() -> None:
    statement, = clamped(second="mulsd xmm1, xmm3").scop.statements
    way = "fle.i64(xmm2, A0[i])"
    assert str(statement).partition(": ")[2] == (
        f"A0[i] = select({way}, mul(select({way}, A0[i], {ONE}), xmm3), xmm2)")


def test_operations_on_a_way_inside_a_way_are_done_where_both_are_gone() -> None:
    body = (f"{LOADS}; comisd xmm1, xmm0; jbe next; mulsd xmm1, xmm1; comisd xmm1, xmm0; jbe next; divsd xmm1, xmm0\n"
            "movsd [rdi+rbx*8], xmm1")
    outer = "flt.i64(A0[i], A1[i])"
    found, = statements(body)
    assert f"mul(select({outer}, A1[i], {ONE}), select({outer}, A1[i], {ONE}))" in found
    assert found.count("div(") == found.count("div(select(") == 1
    assert found.count(ONE) > 4
