"""Every form of instruction that may be lifted, against the processor: bits and exception flags of the new code.

The long tests run a quarter of all forms, and more drawn programs; with MEMOPT_ALL_FORMS=1 all forms, which takes ten
minutes of processor time.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

from memopt.ir.isa import Isa
from memopt.ir.reasons import Rejected
from tests.property.test_semantics import needs_avx
from tests.support.drawn_instructions import drawn
from tests.support.effort import some
from tests.support.inprocess import host_isas
from tests.support.instruction_forms import families
from tests.support.instruction_sweep import assembled, difference

TOGETHER = 40  # forms in one test
EVERY = 1 if os.environ.get("MEMOPT_ALL_FORMS") else 4
# VEX takes a way of its own with these, or with their relatives.
UNDERSTOOD = (
    "vcmppd ymm0, ymm1, ymm2, 17", "vcmpsd xmm0, xmm1, xmm2, 25", "vcmpps ymm0, ymm1, ymm2, 16",
    "vcmppd ymm0, ymm1, ymm2, 24", "vcmpps xmm0, xmm1, xmm2, 12", "cmpltps xmm0, xmm1", "cmpnlepd xmm0, xmm1",
    "cvttps2dq xmm0, xmm1", "vcvtps2dq ymm0, ymm1", "vcvttpd2dq xmm0, ymm1", "cvtpd2dq xmm0, xmm1",
    "vcvtdq2ps ymm0, ymm1", "cvtps2pd xmm0, xmm1", "cvtsi2ss xmm0, r9", "cvtss2si r10, xmm1", "haddps xmm0, xmm1",
    "vaddsubps ymm0, ymm1, ymm2", "comiss xmm0, xmm1; seta r10b; movzx r10d, r10b",
    "ucomisd xmm0, xmm1; setp r10b; movzx r10d, r10b", "comisd xmm0, xmm1; test r8, r8; mov r10, r9",
    "minps xmm0, xmm1", "sqrtpd xmm0, xmm1",
)
LATER = ("vroundpd ymm0, ymm1, 9", "vroundps ymm0, ymm1, 1", "vroundsd xmm0, xmm1, xmm2, 12",
         "vfnmsub231pd ymm0, ymm1, ymm2", "vfnmadd132ss xmm0, xmm1, xmm2", "vfmaddsub213ps ymm0, ymm1, ymm2")
FORMS = {f"{name} {n}": forms[n:n + TOGETHER][::EVERY]
         for name, forms in families().items() for n in range(0, len(forms), TOGETHER)}


def ran(forms: Sequence[str], rounds: int) -> dict[str, tuple[Isa, ...]]:
    """The instruction sets that each form has new code for; AssertionError where that does something else."""
    found: dict[str, tuple[Isa, ...]] = {}
    for form, machine_code in assembled(forms).items():
        try:
            different, found[form] = difference(form, machine_code, host_isas(), rounds)
        except Rejected:
            continue
        assert not different, different
    return found


@needs_avx
@pytest.mark.parametrize(("forms", "least"), [(UNDERSTOOD, Isa.SSE2), (LATER, Isa.AVX2)], ids=["sse2", "avx2"])
def test_what_is_understood_has_new_code_that_does_the_same(forms: tuple[str, ...], least: Isa) -> None:
    wanted = tuple(isa for isa in host_isas() if isa is not Isa.SSE2 or least is Isa.SSE2)
    assert ran(forms, 60) == dict.fromkeys(forms, wanted)


@needs_avx
@pytest.mark.long
@pytest.mark.parametrize("forms", FORMS.values(), ids=FORMS)
def test_each_form_does_the_same_or_is_refused(forms: Sequence[str]) -> None:
    ran(forms, 150)


@needs_avx
@pytest.mark.parametrize("seed", some(range(60), 6))
def test_drawn_programs_raise_the_same_flags(seed: int) -> None:
    ran([drawn(seed)], 100)
