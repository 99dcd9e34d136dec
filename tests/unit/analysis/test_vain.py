"""Floating-point operations the results of which nothing uses: their flags have to come from others."""

from __future__ import annotations

import pytest

from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Region
from tests.support.lifting import lift_assembly

A, B, C = 0x10000, 0x20000, 0x30000


def lift(body: str) -> Region:
    """for i < 10: ``body``, with a[i] in xmm0, b[i] in xmm1 and c[i] in xmm2"""
    return lift_assembly(f"""
    xor ebx, ebx
i:  movsd xmm0, [rdi+rbx*8]
    movsd xmm1, [rsi+rbx*8]
    movsd xmm2, [r9+rbx*8]
    {body}
    inc rbx
    cmp rbx, r8
    jne i
    ret
""", {"r8": 10, "rbx": 1, "rdi": A, "rsi": B, "r9": C}).region


STORED = "mulsd xmm1, xmm0; movsd [r9+rbx*8], xmm1"


@pytest.mark.parametrize("body", [
    f"movapd xmm3, xmm1; addsd xmm3, xmm0; {STORED}",
    f"movapd xmm3, xmm2; cmpltsd xmm3, xmm0; {STORED}",
    f"xorps xmm3, xmm3; cvtsd2ss xmm3, xmm2; {STORED}",
    "unpcklpd xmm0, xmm1; unpcklpd xmm1, xmm2; mulpd xmm0, xmm1; movsd [r9+rbx*8], xmm0",  # b * c is not stored
    "movapd xmm3, xmm1; cmpltsd xmm3, xmm0; ucomisd xmm1, xmm0; jbe n; movsd [rdi+rbx*8], xmm1; n:",  # may signal
])
def test_flags_that_nothing_stored_raises(body: str) -> None:
    with pytest.raises(Rejected) as refused:
        lift(body)
    assert refused.value.reason is Reason.UNPROVED
    assert "flags" in refused.value.detail


@pytest.mark.parametrize("body", [
    STORED,
    f"movapd xmm3, xmm1; mulsd xmm3, xmm0; {STORED}",
    f"movapd xmm3, xmm0; mulsd xmm3, xmm1; {STORED}",  # the other way round
    f"ucomisd xmm2, xmm2; {STORED}; ucomisd xmm2, xmm2; jp n; movsd [rdi+rbx*8], xmm2; n:",
    "unpcklpd xmm0, xmm0; unpcklpd xmm1, xmm1; mulpd xmm0, xmm1; movsd [r9+rbx*8], xmm0",  # both lanes alike
    "movd xmm0, [rdi+rbx*8]; movd xmm1, [rsi+rbx*8]; mulps xmm0, xmm1; addps xmm0, xmm1; movd [r9+rbx*8], xmm0",
    f"movq rax, xmm2; add rax, 1; {STORED}",  # an integer operation
])
def test_flags_that_something_stored_raises_too(body: str) -> None:
    assert lift(body).scop.statements
