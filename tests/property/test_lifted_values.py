"""Values that pass through registers in every way compilers know: the SCoP's text run against the real process."""

from __future__ import annotations

import pytest

from memopt.ir.reasons import Reason, Rejected
from tests.conftest import Build
from tests.property.test_lifted_accesses import check
from tests.support.effort import some, some_rows

_CASES = range(1, 21)
_BUILDS = (("gcc", "-O2"), ("gcc", "-O1"), ("gcc", "-O3"), ("clang", "-O2"))


@pytest.mark.parametrize(("compiler", "level"), some_rows(_BUILDS, 1))
@pytest.mark.parametrize("case", some(_CASES, 10))
@pytest.mark.parametrize("real", some(["double", "float"], 1))
def test_values(build: Build, real: str, case: int, compiler: str, level: str) -> None:
    flags = (f"-DCASE={case}", f"-DREAL={real}", "-fcf-protection=none", "-fno-math-errno")
    program = build("values.c", *flags, compiler=compiler, level=level)
    try:
        check([str(program), "21"], exactly_read=False)
    except Rejected as refusal:
        if (compiler, level) == ("gcc", "-O1") and refusal.reason is not Reason.UNPROVED:
            raise
