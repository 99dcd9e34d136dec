"""Row pointers in memory: which words are a table, and what a nest that goes through one relies on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Disjoint, Progression
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


def test_a_nest_through_a_table_is_guarded_by_its_words() -> None:
    region = lift(CELLS).region
    words, = (g for g in region.guards if isinstance(g, Progression))
    assert (words.low, words.high, words.first, words.step) == (TABLE, TABLE + 8 * N, ROWS, STEP)
    assert words.pointers == (Linear.symbol("rdi"),)
    low, high = (Linear.symbol("rdi") + Linear.symbol("rbx", 8) - TABLE,
                 -Linear.symbol("rdi") - Linear.symbol("rbx", 8) - Linear.symbol("R", 8) + (TABLE + 8 * N))
    assert low in region.nonnegative
    assert high in region.nonnegative
    array, = region.scop.arrays
    assert array.strides == (STEP, 8)


def test_nothing_that_is_written_lies_in_the_table() -> None:
    region = lift(CELLS).region
    table = [g for g in region.guards if isinstance(g, Disjoint)
             and TABLE in (g.first.low.constant, g.second.low.constant)]
    assert table
    inside = {TABLE + 8 * n: TABLE - STEP + STEP * n for n in range(N)}
    with pytest.raises(Rejected) as refused:
        lift(inside)
    assert refused.value.reason is Reason.OVERLAP


def test_rows_at_uneven_distances_stay_data() -> None:
    with pytest.raises(Rejected) as refused:
        lift({a: w + (a % 3) * 16 for a, w in CELLS.items()})
    assert refused.value.reason is Reason.DATA_DEPENDENT_ADDRESS
