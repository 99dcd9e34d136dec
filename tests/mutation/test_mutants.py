"""Faults seeded in the engine: every one is noticed by the check it is listed with (tests/mutation/faults.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from memopt.ir.isa import Isa
from memopt.machine.description import usable_isas
from memopt.machine.detect import detect
from tests.mutation.faults import FAULTS, Fault

_ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """What became of every check without a fault and with each."""
    done = subprocess.run([sys.executable, "-m", "tests.mutation.seeding"], cwd=_ROOT, capture_output=True, text=True,
                          check=True)
    return {name: word for word, name, _ in (line.split("\t") for line in done.stdout.splitlines())}


@pytest.mark.timeout(900)
def test_the_checks_pass_without_a_fault(outcomes: dict[str, str]) -> None:
    passing = {name for name, word in outcomes.items() if word == "without survived"}
    assert {str(f.check) for f in FAULTS} <= passing


@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_caught(outcomes: dict[str, str], fault: Fault) -> None:
    if fault.masks and Isa.AVX512 not in usable_isas(detect()):
        pytest.skip("this machine has no AVX-512")
    assert outcomes[fault.name] == "caught"
