"""Counters that begin below zero, and indices that end at the edges of an array."""

from __future__ import annotations

import pytest

from memopt.ir.region import Region
from tests.support.lifting import lift_assembly

A, B = 0x10000, 0x90000


def _sums(first: int, *body: str, before: str = "") -> Region:
    """Rows of sums over a counter in r9d that goes from ``first`` to 1."""
    return lift_assembly(f"""
        i:  xorps xmm0, xmm0
            {before}
            mov r9d, {first}
        d:  {"; ".join(body)}
            cmp r9d, 2
            jne d
            movsd [rsi], xmm0
            add rdi, 8
            add rsi, 8
            cmp rdi, rdx
            jne i
            ret
    """, {"rdi": A, "rdx": A + 800, "rsi": B}).region


@pytest.mark.parametrize("first", [-1, -3])
def test_a_32_bit_counter_that_wraps_around_to_zero(first: int) -> None:
    """``for (int d = -1; d <= 1; d++)``: the register holds 0xffffffff, then 0, then 1."""
    region = _sums(first, "addsd xmm0, [rcx]", "add r9d, 1", "add rcx, 8", before="mov rcx, rdi")
    zero, summed = map(str, region.scop.statements)
    assert zero == "S0[i<R]: A0[i] = 0x0"
    assert summed == f"S1[i<R, j<{2 - first}] at (0, 1, 0): A0[i] = add(A0[i], A1[i + j])"


def test_a_counter_that_is_used_as_an_index_while_it_is_negative() -> None:
    """Widened with its sign it is an index; the same bits widened without are not, but nobody looks at these."""
    region = _sums(-1, "movsxd rcx, r9d", "addsd xmm0, [rdi + rcx*8]", "add r9d, 1")
    read = next(f for f in region.footprints if not f.written)
    assert read.interval.low.evaluate({"rdi": A, "rsi": B, "R": 100}) == A - 8


CLAMPED = """
    i:  xor r8d, r8d
    j:  mov edx, r8d
        {low}
        cmp edx, ebx
        cmovg edx, ebx
    at: movsxd rdx, edx
        movsd xmm0, [rdi + rdx*8]
        movsd [rsi + r8*8], xmm0
        add r8d, 1
        cmp r8d, 100
        jne j
        add rdi, 800
        add rsi, 800
        sub r10, 1
        jne i
        ret
"""


@pytest.mark.parametrize("low", [
    "sub edx, 3; cmovs edx, r9d",  # the sign of a difference
    "sub edx, 3; js at",
    "sub edx, 3; cmp edx, r9d; cmovl edx, r9d",
])
def test_an_index_that_ends_at_the_edges_is_several_pieces(low: str) -> None:
    """``max(0, min(j - 3, 99))``, by conditional moves and by branches around them; -3 where the branch goes."""
    region = lift_assembly(CLAMPED.format(low=low), {"r9": 0, "rbx": 90, "r10": 20, "rdi": A + 24, "rsi": B}).region
    cells = {str(r.subscripts[-1]) for s in region.scop.statements for r in s.reads}
    assert len(region.scop.statements) == 3
    assert len(cells) == (2 if "js" in low else 3)
