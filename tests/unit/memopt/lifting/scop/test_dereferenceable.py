"""A guard looks at a cell behind a pointer only where the original reads it too."""

from __future__ import annotations

import pytest

from memopt.ir.reasons import Rejected
from memopt.ir.region import Cell, LiveIn, Region, Relation
from memopt.ir.scop import TRIPS
from tests.support.lifting import lift_assembly

A, P = 0x10000, 0x90000
CELL = "m[rsi]:64"
ROWS = 50

# for (i...) for (j = i; j < r9; j++) a[i][*rsi + j] = i;
NEST = """
    i:  mov r8, rcx
        {outside}
        cmp r8, r9
        jge next
        {before}
    j:  {inside}
        lea r10, [rdi + rax*8]
        mov [r10 + r8*8], rcx
        add r8, 1
        cmp r8, r9
        jne j
    next:
        add rcx, 1
        add rdi, 800
        cmp rcx, rdx
        jne i
        ret
"""


def _lift(columns: int, **where: str) -> Region:
    code = NEST.format(**{"outside": "", "before": "", "inside": "", **where})
    return lift_assembly(code, {"rdi": A, "rcx": 0, "rdx": ROWS, "r9": columns, "rsi": P}, {P: 7}).region


def _cell(region: Region) -> LiveIn:
    return next(x for x in region.live_ins if x.symbol == CELL)


@pytest.mark.parametrize("place", ["before", "inside"])
def test_a_cell_that_is_read_where_an_inner_loop_runs(place: str) -> None:
    """The first row is the longest: when it has a column, the cell is read."""
    region = _lift(20, **{place: "mov rax, [rsi]"})
    assert _cell(region).after == {TRIPS}
    assert f"R - {ROWS - 20 + 1}" in [str(g.expression) for g in region.guards if isinstance(g, Relation)]


def test_a_cell_that_every_iteration_reads_needs_no_guard() -> None:
    assert _cell(_lift(20, outside="mov rax, [rsi]")).after == frozenset()


def test_a_cell_that_is_not_read_at_the_captured_values() -> None:
    with pytest.raises(Rejected):
        _lift(0, inside="mov rax, [rsi]")


@pytest.mark.parametrize(("flag", "bound"), [("[r11]", "[rsi]"), ("[rsi]", "[r11]"), ("[0x600000]", "[rsi]"),
                                             ("[rsi]", "[0x600000]")])
def test_a_cell_behind_a_branch_is_read_after_the_cell_that_decides_it(flag: str, bound: str) -> None:
    """``if (*flag) for (j = 0; j < *bound; j++) a[i][j] = b[j];``: the second pointer may be none if the flag is not
    set."""
    code = f"""
    i:  xor r8d, r8d
        cmp qword ptr {flag}, 5
        jl next
        mov rax, {bound}
    j:  mov r10, [rbx + r8*8]
        mov [rdi + r8*8], r10
        add r8, 1
        cmp r8, rax
        jl j
    next:
        add rcx, 1
        add rdi, 800
        cmp rcx, rdx
        jne i
        ret
    """
    registers = {"rdi": A, "rcx": 0, "rdx": ROWS, "rsi": P, "r11": 0x500000, "rbx": 0x400000}
    region = lift_assembly(code, registers, dict.fromkeys((P, 0x500000, 0x600000), 20)).region
    cells = [x.location for x in region.live_ins if isinstance(x.location, Cell)]
    names = {"[r11]": ("r11", 0), "[rsi]": ("rsi", 0), "[0x600000]": ("", 0x600000)}
    assert [(c.base, c.displacement) for c in cells] == [names[flag], names[bound]]
