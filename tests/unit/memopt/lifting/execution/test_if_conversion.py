"""Branches on data in small assembled loops: what becomes a choice of what is stored, and what is refused."""

from __future__ import annotations

import struct

import pytest

from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Region
from memopt.ir.scop import plain_reads
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


@pytest.mark.parametrize(("jump", "condition"), [
    ("jbe", "flt.i64(A0[i], A1[i])"),  # stored when b > a
    ("jae", "not.i64(fle.i64(A0[i], A1[i]))"),  # when b < a or unordered
    ("ja", "not.i64(flt.i64(A0[i], A1[i]))"),  # when b <= a or unordered
    ("jb", "fle.i64(A0[i], A1[i])"),
    ("jp", "not.i64(funord.i64(A1[i], A0[i]))"),
])
def test_a_store_that_is_passed_over_stays_one(jump: str, condition: str) -> None:
    compare = "ucomisd" if jump == "jp" else "comisd"
    assert statements(f"{LOADS}; {compare} xmm1, xmm0; {jump} next; movsd [rdi+rbx*8], xmm1") == [
        f"A0[i] = when({condition}, A1[i])"]


@pytest.mark.parametrize(("jump", "condition"), [
    ("jge", "slt.i64(A1[i], A0[i])"), ("jg", "sle.i64(A1[i], A0[i])"), ("jle", "slt.i64(A0[i], A1[i])"),
    ("jl", "sle.i64(A0[i], A1[i])"), ("jae", "ult.i64(A1[i], A0[i])"), ("ja", "ule.i64(A1[i], A0[i])"),
    ("jbe", "ult.i64(A0[i], A1[i])"), ("jb", "ule.i64(A0[i], A1[i])"),
])
def test_integers_compare_with_and_without_sign(jump: str, condition: str) -> None:
    found, = statements(f"{INTEGERS}; cmp rdx, rax; {jump} next; mov [rdi+rbx*8], rdx")
    assert found.startswith(f"A0[i] = when.i64({condition}, A1[i])")


def test_both_ways_store_to_one_cell() -> None:
    body = f"{INTEGERS}; cmp rdx, 7; je other; mov [r9+rbx*8], rdx; jmp next; other: mov [r9+rbx*8], rax"
    assert statements(body) == ["A0[i] = select.i64(eq.i64(A1[i], 0x7), A2[i], A1[i])"]


def test_the_ways_store_to_different_cells() -> None:
    body = f"{INTEGERS}; cmp rdx, 7; je other; mov [r9+rbx*8], rdx; jmp next; other: mov [rsi+rbx*8+8], rax"
    assert statements(body) == ["A0[i + 1] = when.i64(eq.i64(A0[i], 0x7), A1[i])",
                                "A2[i] = when.i64(not.i64(eq.i64(A0[i], 0x7)), A0[i])"]


def test_what_a_way_overwrites_decides_no_more() -> None:
    """if (b > a) c = a; else a = b: what is compared is still needed after the first store"""
    body = f"{INTEGERS}; cmp rdx, rax; jle other; mov [r9+rbx*8], rax; jmp next; other: mov [rdi+rbx*8], rdx"
    first, second, third = statements(body)
    assert first == "P0[i] = A0[i]"
    assert second == "A0[i] = when.i64(sle.i64(A1[i], A0[i]), A1[i])"
    assert third == "A2[i] = when.i64(slt.i64(P0[i], A1[i]), P0[i]), reads A1[i], P0[i]"


def test_choices_inside_choices() -> None:
    body = f"{INTEGERS}; cmp rdx, rax; jle next; cmp rax, 5; jne next; mov [rdi+rbx*8], rdx"
    assert statements(body) == [
        "A0[i] = when.i64(and.i64(slt.i64(A0[i], A1[i]), eq.i64(A0[i], 0x5)), A1[i]), reads A1[i], A0[i]"]


LOADED = "mov rax, [rdi+rbx*8]; cmp rax, 7; je other; mov rdx, [rsi+rbx*8]; jmp n; other: {}; n: mov [rdi+rbx*8], rdx"
IS_7 = "eq.i64(A0[i], 0x7)"


def test_each_way_loads_its_own_cell() -> None:
    assert statements(LOADED.format("mov rdx, [r9+rbx*8]")) == [
        f"A0[i] = select.i64({IS_7}, when.i64({IS_7}, A1[i]), when.i64(not.i64({IS_7}), A2[i]))"]


def test_a_cell_that_both_ways_load_is_loaded_in_any_case() -> None:
    assert statements(LOADED.format("mov rdx, [rsi+rbx*8]; inc rdx")) == [
        f"A0[i] = select.i64({IS_7}, add.i64(A1[i], 0x1), A1[i])"]


@pytest.mark.parametrize("again", ["mov rdx, [rdi+rbx*8]; mov [rsi+rbx*8], rdx", "mov rdx, [r9+rbx*8]"])
def test_a_cell_that_each_iteration_loads_is_loaded_in_any_case(again: str) -> None:
    """In front of the branch, or behind it."""
    after = "next: mov rcx, [r9+rbx*8]; mov [rdi+rbx*8+800], rcx; mov [rsi+rbx*8+800], rdx"
    after = after if "r9" in again else "next:"
    found = lift_assembly(f"xor ebx, ebx\ni: mov rax, [rdi+rbx*8]; cmp rax, 7; je next; {again}\n{after}\n"
                          "inc rbx; cmp rbx, r8; jne i\nret", REGISTERS).region.scop.statements
    assert not any(len(plain_reads(s.expression)) < len(s.reads) for s in found)


def test_a_value_that_is_needed_later_is_kept_where_it_is_loaded() -> None:
    """if (a != 7) { if (b != 5) b = c; }"""
    body = ("mov rax, [rdi+rbx*8]; cmp rax, 7; je next; mov rdx, [rsi+rbx*8]; cmp rdx, 5; je next\n"
            "mov rcx, [r9+rbx*8]; mov [rsi+rbx*8], rcx")
    first, second, *_ = statements(body)
    assert first == f"P0[i] = when.i64(not.i64({IS_7}), when.i64(not.i64({IS_7}), A1[i]))"
    both = f"and.i64(not.i64({IS_7}), not.i64(eq.i64(P0[i], 0x5)))"
    assert second == f"A1[i] = when.i64({both}, when.i64({both}, A2[i]))"


@pytest.mark.parametrize("store", ["movsd [rdi+rbx*8], xmm1", "movsd [r9], xmm1"])
def test_a_register_has_no_home_in_a_cell_that_is_stored_to_conditionally(store: str) -> None:
    """s = 0; for (k) s += a[k]; if (s < m) *c = s;"""
    inner = "xorps xmm1, xmm1; xor ecx, ecx; k: addsd xmm1, [rsi+rcx*8]; inc rcx; cmp rcx, 9; jne k"
    found = statements(f"{inner}; comisd xmm1, xmm2; jae next; {store}")
    assert all(s.startswith("P") for s in found[:-1])
    assert "= when(" in found[-1]


def test_a_register_is_chosen() -> None:
    body = f"{INTEGERS}; cmp rdx, 3; jb skip; mov rdx, rax; skip: mov [r9+rbx*8], rdx"
    assert statements(body) == ["A0[i] = select.i64(ule.i64(0x3, A1[i]), A2[i], A1[i])"]


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
    assert statements(compared) == ["A0[i] = when(fqlt.i64(A0[i], A1[i]), A1[i])"]
    compared = f"{LOADS}; ucomisd xmm1, xmm0; jae next; movsd [rdi+rbx*8], xmm1"
    assert statements(compared) == ["A0[i] = when(not.i64(fqle.i64(A0[i], A1[i])), A1[i])"]


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
