"""Copies with swapped operands: brought into one order, where no NaN can tell, and left alone elsewhere."""

from __future__ import annotations

import struct

import pytest

from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Lane, Region
from tests.support.lifting import lift_assembly

A, B, C = 0x10000, 0x20000, 0x30000
_TURNS = {"rdi": A, "rsi": B, "rdx": C, "r8": 40}


def lift(second: str, last: str = "", element: str = "sd", **registers: int) -> Region:
    """for i < R: for j < 32: a[2j] = b[2j] + c[2j]; ``second``, which puts a[2j+1] into xmm0; ``last``"""
    size = 8 if element == "sd" else 4
    return lift_assembly(f"""
i:  xor ecx, ecx
j:  mov{element} xmm0, [rsi + rcx*{size}]
    add{element} xmm0, [rdx + rcx*{size}]
    mov{element} [rdi + rcx*{size}], xmm0
    {second.replace("ss ", element + " ").replace("*8+8", f"*{size}+{size}")}
    mov{element} [rdi + rcx*{size} + {size}], xmm0
    add rcx, 2
    cmp rcx, 64
    jne j
    {last}
    dec r8
    jne i
    ret
""", _TURNS | registers, vectors={f"xmm{n}": struct.pack("<4d", 1, 2, 3, 4) for n in range(8)}).region


SAME = "movss xmm0, [rsi + rcx*8+8]\n addss xmm0, [rdx + rcx*8+8]"
SWAPPED = "movss xmm0, [rdx + rcx*8+8]\n addss xmm0, [rsi + rcx*8+8]"


@pytest.mark.parametrize("element", ["sd", "ss"])
def test_swapped_copies_are_one_statement_where_there_is_no_nan(element: str) -> None:
    region = lift(SWAPPED, element=element)
    (statement,) = region.scop.statements
    assert [str(d.trips) for d in statement.dimensions] == ["R", "64"]
    size = 8 if element == "sd" else 4
    covered = sorted((str(n.where), n.size) for n in region.nan_free)
    assert covered == sorted((r.array, size) for r in statement.reads)
    plain = lift(SAME, element=element)
    assert plain.scop.statements == region.scop.statements
    assert not plain.nan_free


@pytest.mark.parametrize("second", [
    SWAPPED.replace("addss", "subss"),  # does not commute
    SWAPPED.replace("addss", "mulss"),  # something else
    SWAPPED + "\n mulss xmm0, xmm3",
])
def test_what_is_no_copy_keeps_its_order(second: str) -> None:
    region = lift(second)
    assert len(region.scop.statements) == 2
    assert not region.nan_free


@pytest.mark.parametrize("last", [
    # a sign that is flipped makes a second kind of NaN
    "movsd xmm0, [rsi]\n xorpd xmm0, xmm3\n movsd [rsi], xmm0",
    # so do numbers that come from elsewhere
    "movsd xmm0, [rsi]\n cvtsd2ss xmm0, xmm0\n cvtss2sd xmm0, xmm0\n movsd [rsi], xmm0",
])
def test_the_order_is_kept_where_nans_may_differ(last: str) -> None:
    region = lift(SWAPPED, last)
    assert not region.nan_free
    assert sum(len(s.dimensions) == 2 for s in region.scop.statements) == 2


def test_the_order_is_kept_where_looking_takes_longer_than_the_work() -> None:
    assert lift(SWAPPED, r8=4).nan_free
    assert not lift(SWAPPED, r8=3).nan_free


def test_a_scalar_operand_is_a_lane_to_look_at() -> None:
    region = lift(SWAPPED, "movsd xmm0, [rdi]\n mulsd xmm0, xmm5\n movsd [rdi], xmm0")
    assert Lane("xmm5", 0, 8) in [n.where for n in region.nan_free]


def roots(branch: str, turns: int) -> Region:
    """for i < turns: for j < 64: a[j] = sqrt(a[j] + b[j]), elsewhere where ``branch`` goes"""
    return lift_assembly(f"""
i:  xor ecx, ecx
j:  movsd xmm0, [rsi + rcx*8]
    addsd xmm0, [rdi + rcx*8]
    ucomisd xmm0, xmm7
    {branch} cold
    sqrtsd xmm0, xmm0
back: movsd [rdi + rcx*8], xmm0
    inc rcx
    cmp rcx, 64
    jne j
    dec r8
    jne i
    ret
cold: call root
    jmp back
root: ret
""", _TURNS | {"r8": turns}, vectors={"xmm7": bytes(32)}).region


def test_a_branch_that_leaves_for_nans_too_needs_none_at_entry() -> None:
    region = roots("jb", 40)
    assert region.rollback is not None
    assert sorted(str(n.where) for n in region.nan_free) == sorted(f.array for f in region.footprints)


def test_nans_that_would_take_too_long_to_look_for_may_not_at_another_entry() -> None:
    with pytest.raises(Rejected) as refused:
        roots("jb", 3)
    assert refused.value.reason is Reason.TOO_SHORT


def test_a_branch_that_leaves_for_other_numbers_is_no_invalid_root() -> None:
    with pytest.raises(Rejected):
        roots("jae", 40)
