"""Branches that leave for a negative operand of a square root, which count only where the root is computed."""

from __future__ import annotations

import pytest

from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Region
from tests.support.lifting import lift_assembly

A, B, C = 0x10000, 0x20000, 0x30000
_SUM = "sqrtsd xmm0, xmm0\n back: mulsd xmm0, [rdx + rcx*8]\n addsd xmm1, xmm0"


def lift(inner: str, after: str, element: str = "sd", cold: str = "call root\n jmp back") -> Region:
    """for i < R: t = 0; for j < 64: x = b[j] + a[i], ``inner``, or ``cold`` for a negative x; ``after``"""
    size = 8 if element == "sd" else 4
    text = f"""
i:  xor ecx, ecx
    xorps xmm1, xmm1
j:  movsd xmm0, [rsi + rcx*8]
    addsd xmm0, [rdi + r8*8]
    ucomisd xmm7, xmm0
    ja cold
    {inner}
    inc rcx
    cmp rcx, 64
    jne j
    {after}
    dec r8
    jne i
    ret
cold:
    {cold}
root: ret
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
    assert lift("sqrtsd xmm0, xmm0\n back: movsd [rdx + rcx*8], xmm0", "", element).rollback is not None


@pytest.mark.parametrize(("inner", "after"), [
    ("sqrtsd xmm0, xmm0\n back: movaps xmm1, xmm0", "movsd [rdi + r8*8], xmm1"),  # the last one alone counts
    (_SUM, "movsd xmm2, [rdi + r8*8]\n addsd xmm2, xmm2\n movsd [rdi + r8*8], xmm2"),  # the sum is forgotten
    ("back: addsd xmm1, xmm0", "movsd [rdi + r8*8], xmm1"),  # there is no root
])
def test_roots_that_nothing_stored_is_made_of(inner: str, after: str) -> None:
    with pytest.raises(Rejected) as refused:
        lift(inner, after)
    assert refused.value.reason is Reason.DATA_DEPENDENT_BRANCH
    assert "square root is not stored" in refused.value.detail


_ROOT = "sqrtsd xmm0, xmm0\n back: movsd [rdx + rcx*8], xmm0\n go_on:"


@pytest.mark.parametrize("cold", [
    pytest.param("movsd [rsp + 8], xmm2\n call root\n movsd xmm2, [rsp + 8]\n jmp back", id="spills"),
    pytest.param("call root\n movsd [rdx + rcx*8], xmm0\n jmp go_on", id="stores itself"),
    pytest.param("call root\n movsd [rdx + rcx*8], xmm0\n inc rcx\n cmp rcx, 64\n jne j\n dec r8\n jne i\n ret",
                 id="ends the iteration itself"),
])
def test_a_call_that_comes_back_is_no_exit(cold: str) -> None:
    region = lift(_ROOT, "", cold=cold)
    assert region.rollback is not None
    assert region.single_threaded


@pytest.mark.parametrize("cold", [
    pytest.param("ret", id="leaves"),
    pytest.param("call root\n ret", id="leaves after a call"),
    pytest.param("call root\n jmp go_on", id="stores nothing"),
    pytest.param("call [r15]\n jmp back", id="calls something else"),
    pytest.param("call root\n call [r15]\n jmp back", id="calls something else, too"),
    pytest.param("call root\n movsd [rdx], xmm0\n jmp back", id="stores more"),
])
def test_an_exit_for_a_negative_number_is_one(cold: str) -> None:
    """The version must not go on to cells that the original never touches."""
    with pytest.raises(Rejected) as refused:
        lift(_ROOT, "", cold=cold)
    assert refused.value.reason in (Reason.DATA_DEPENDENT_BRANCH, Reason.TRIP_COUNT)
