"""Exception flags of comparisons, conversions and roundings: each call of a program raises what it raises natively."""

from __future__ import annotations

import pytest

from bench.measure.execution import run
from memopt.machine.detect import detect
from tests.conftest import Build
from tests.support.attempts import until_replaced
from tests.support.effort import some_rows
from tests.support.waiting import PATIENCE

CALLS = 250
# The number of the case in raised_flags.c, and the flags that every call raises there.
CASES = {"denormals towards zero": (8, 0x20), "quiet less-than": (1, 0), "upwards": (9, 0x20),
         "quiet not greater or equal": (2, 0), "signalling equality": (3, 1), "equal or unordered": (4, 0),
         "floor": (5, 0), "inexact floor": (6, 0x20), "addition beside subtraction": (7, 0),
         "doubles towards zero": (10, 0x20), "doubles downwards": (11, 0x20), "ucomisd": (12, 0), "comisd": (13, 1),
         "denormals beside NaNs": (14, 0)}


@pytest.mark.parametrize(("case", "flags"), some_rows(CASES.values(), 2, CASES))
def test_each_call_of_new_code_raises_the_flags_of_the_original(build: Build, case: int, flags: int) -> None:
    if "avx2" not in detect().extensions:
        pytest.skip("needs AVX2")
    command = (str(build("raised_flags.c", "-mavx2", f"-DCASE={case}")), str(CALLS))
    native = run(command, PATIENCE)
    assert f"flags {flags:02x}: {CALLS} calls\n".encode() in native.stdout
    trial = until_replaced(command, native)
    assert trial.replaced, trial.reason()
    assert sum(loop["runs"] for loop in trial.replaced) > 1
