"""Row pointers in memory: which words are a table, and what a nest that goes through one relies on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Disjoint, Progression, Region
from memopt.lifting.execution.row_tables import RowTable, table_around
from memopt.lifting.lift import Lifted
from tests.support.lifting import lift_assembly

TABLE, ROWS, STEP, N = 0x10000, 0x40000, 0x60, 10
CELLS = {TABLE + 8 * n: ROWS + STEP * n for n in range(N)}


def peek(cells: dict[int, int]) -> Callable[[int, int], int]:
    def read(address: int, bits: int) -> int:
        if address not in cells:
            raise Rejected(Reason.PROTECTED_MAPPING)
        return cells[address]

    return read


@pytest.mark.parametrize("at", range(N))
def test_a_table_is_found_from_each_of_its_words(at: int) -> None:
    cells = CELLS | {TABLE - 8: 0x71, TABLE + 8 * N: 0}
    assert table_around(TABLE + 8 * at, peek(cells)) == RowTable(TABLE, TABLE + 8 * N, ROWS, STEP)
    assert table_around(TABLE + 8 * at, peek(CELLS)) == RowTable(TABLE, TABLE + 8 * N, ROWS, STEP)


def test_a_table_ends_where_the_progression_does() -> None:
    broken = CELLS | {TABLE + 40: 0x99990}
    assert table_around(TABLE, peek(broken)) == RowTable(TABLE, TABLE + 40, ROWS, STEP)
    assert table_around(TABLE + 72, peek(broken)) == RowTable(TABLE + 48, TABLE + 80, ROWS + 6 * STEP, STEP)


@pytest.mark.parametrize("step", [0, 4, 1 << 31, -1 << 31])
def test_words_that_are_no_table_of_rows(step: int) -> None:
    assert table_around(TABLE, peek({TABLE + 8 * n: ROWS + step * n for n in range(N)})) is None


def test_the_row_is_linear_in_the_pointer() -> None:
    table = RowTable(TABLE, TABLE + 8 * N, ROWS, -STEP)
    pointer = Linear.symbol("p") + Linear.symbol("i", 16)
    assert table.row(pointer).evaluate({"p": TABLE, "i": 3}) == ROWS - 6 * STEP


def lift(cells: dict[int, int]) -> Lifted:
    """a[i][j] += 1.0 by way of a table at rdi."""
    return lift_assembly("""
        xor ebx, ebx
        i: mov rax, [rdi + rbx*8]
        xor ecx, ecx
        j: movsd xmm0, [rax + rcx*8]
        addsd xmm0, xmm1
        movsd [rax + rcx*8], xmm0
        inc rcx
        cmp rcx, r8
        jne j
        inc rbx
        cmp rbx, r8
        jne i
        xor eax, eax
        ret""", {"r8": N, "rbx": 1, "rdi": TABLE}, cells)


def tables(region: Region) -> list[Progression]:
    return [g for g in region.guards if isinstance(g, Progression)]


def test_a_nest_through_a_table_is_guarded_by_its_words() -> None:
    region = lift(CELLS).region
    words, = tables(region)
    assert (words.place, words.first, words.step) == (TABLE, ROWS, STEP)
    assert list(map(str, words.words)) == ["[8*i + 8*rbx + rdi: i<R]"]
    low, high = (Linear.symbol("rdi") + Linear.symbol("rbx", 8) - TABLE,
                 -Linear.symbol("rdi") - Linear.symbol("rbx", 8) - Linear.symbol("R", 8) + (TABLE + 8 * N))
    assert low in region.nonnegative
    assert high in region.nonnegative
    array, = region.scop.arrays
    assert array.strides == (STEP, 8)


ADD = """
        j: movsd xmm0, [rax + rcx*8]
        addsd xmm0, xmm1
        movsd [rax + rcx*8], xmm0
        inc rcx
        cmp rcx, {end}
        jne j"""


def lift_rows(body: str) -> Region:
    """for i < N: body"""
    return lift_assembly(f"""
        xor ebx, ebx
        i: xor ecx, ecx
        {body}
        next: inc rbx
        cmp rbx, r8
        jne i
        ret""", {"r8": N, "rbx": 0, "rdi": TABLE, "rsi": 0x80000}, CELLS).region


@pytest.mark.parametrize(("body", "cells"), [
    pytest.param("mov rax, [rdi + rbx*8]; test rbx, rbx; je next" + ADD.format(end="rbx"),
                 set(range(N - 1)), id="before the branch"),
    pytest.param("cmp rbx, 1; jle next; mov rax, [rdi + rbx*8]" + ADD.format(end=8), set(range(2, N - 1)),
                 id="behind a branch"),
    pytest.param("cmp rbx, 0; jle next; mov rax, [rdi + rbx*8]" + ADD.format(end="rbx"), set(range(1, N - 1)),
                 id="where the inner loop runs"),
    pytest.param("mov rax, [rdi + 16]" + ADD.format(end=8).replace("addsd xmm0, xmm1", "mov rdx, [rdi + rcx*8]\n"
                                                                   "addsd xmm0, [rdx + rbx*8]"),
                 set(range(8)), id="of an inner loop"),
])
def test_the_words_are_those_that_the_nest_loads(body: str, cells: set[int]) -> None:
    """In iterations 0 .. H-1, the last but one."""
    region = lift_rows(body)
    values = {"rdi": TABLE, "rbx": 0, "r8": N, "R": N, "H": N - 1}
    found = {at for t in tables(region) for c in t.words for at in c.addresses(values)}
    assert found == {TABLE + 8 * n for n in cells}


def test_a_row_pointer_that_data_may_leave_unread_is_not_looked_at() -> None:
    some = """
        j: movsd xmm0, [rsi + rcx*8]
        ucomisd xmm0, xmm1
        jbe over
        {within}
        movsd [rax + rcx*8], xmm0
        over: inc rcx
        cmp rcx, 8
        jne j"""
    with pytest.raises(Rejected) as refused:
        lift_rows(some.format(within="mov rax, [rdi + rbx*8]"))
    assert refused.value.reason is Reason.DATA_DEPENDENT_ADDRESS
    assert "on a condition on data" in refused.value.detail
    assert tables(lift_rows("mov rax, [rdi + rbx*8]" + some.format(within="")))
    twice = some.replace("jbe over", "mov rax, [rdi + rbx*8]\n movsd xmm2, [rax + rcx*8]\n"
                         "movsd [rsi + rcx*8 + 800], xmm2\n jbe over").format(within="mov rax, [rdi + rbx*8]")
    assert len(tables(lift_rows(twice))) == 1


def test_nothing_that_is_written_lies_in_the_table() -> None:
    region = lift(CELLS).region
    table, = tables(region)
    assert any(isinstance(g, Disjoint) and table.within in (g.first, g.second) for g in region.guards)
    inside = {TABLE + 8 * n: TABLE - STEP + STEP * n for n in range(N)}
    with pytest.raises(Rejected) as refused:
        lift(inside)
    assert refused.value.reason is Reason.OVERLAP


def test_rows_at_uneven_distances_stay_data() -> None:
    with pytest.raises(Rejected) as refused:
        lift({a: w + (a % 3) * 16 for a, w in CELLS.items()})
    assert refused.value.reason is Reason.DATA_DEPENDENT_ADDRESS
