"""Branches that leave for a negative operand of a square root, which count only where the root is computed."""

from __future__ import annotations

import pytest

from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Region
from tests.support.lifting import lift_assembly

A, B, C = 0x10000, 0x20000, 0x30000
_SUM = "sqrtsd xmm0, xmm0\n mulsd xmm0, [rdx + rcx*8]\n addsd xmm1, xmm0"


def lift(inner: str, after: str, element: str = "sd") -> Region:
    """for i < R: t = 0; for j < 64: x = b[j] + a[i], ``inner`` unless it is negative; ``after``"""
    size = 8 if element == "sd" else 4
    text = f"""
i:  xor ecx, ecx
    xorps xmm1, xmm1
j:  movsd xmm0, [rsi + rcx*8]
    addsd xmm0, [rdi + r8*8]
    ucomisd xmm7, xmm0
    ja out
    {inner}
    inc rcx
    cmp rcx, 64
    jne j
    {after}
    dec r8
    jne i
out: ret
"""
    text = text.replace("*8", f"*{size}").replace("sd ", f"{element} ")
    return lift_assembly(text, {"rdi": A, "rsi": B, "rdx": C, "r8": 40}, vectors={"xmm7": bytes(32)}).region


@pytest.mark.parametrize("element", ["sd", "ss"])
def test_a_sum_that_is_stored_after_the_loop_takes_every_root(element: str) -> None:
    region = lift(_SUM, "movsd [rdi + r8*8], xmm1", element)
    assert region.rollback is not None
    assert "sqrt" in str(region.scop)


@pytest.mark.parametrize("element", ["sd", "ss"])
def test_a_root_that_is_stored_itself(element: str) -> None:
    assert lift("sqrtsd xmm0, xmm0\n movsd [rdx + rcx*8], xmm0", "", element).rollback is not None


@pytest.mark.parametrize(("inner", "after"), [
    ("sqrtsd xmm0, xmm0\n movaps xmm1, xmm0", "movsd [rdi + r8*8], xmm1"),  # the last one alone counts
    (_SUM, "movsd xmm2, [rdi + r8*8]\n addsd xmm2, xmm2\n movsd [rdi + r8*8], xmm2"),  # the sum is forgotten
    ("addsd xmm1, xmm0", "movsd [rdi + r8*8], xmm1"),  # there is no root
])
def test_roots_that_nothing_stored_is_made_of(inner: str, after: str) -> None:
    with pytest.raises(Rejected) as refused:
        lift(inner, after)
    assert refused.value.reason is Reason.DATA_DEPENDENT_BRANCH
    assert "square root is not stored" in refused.value.detail
