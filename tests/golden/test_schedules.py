"""The pipeline's text forms, after every pass, against files kept beside this one.

Regenerate after an intended change with ``UPDATE_GOLDEN=1 pytest tests/golden``, and read the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from memopt.ir.plan import Isa
from memopt.ir.scop import ElementType
from tests.support.machines import HASWELL, ZEN5
from tests.support.plans import plan
from tests.support.products import product

_FOLDER = Path(__file__).parent / "schedules"


@pytest.mark.parametrize(
    ("order", "n", "element", "isa"),
    [
        ("ijk", 2048, ElementType.F64, Isa.AVX512),
        ("ikj", 1009, ElementType.F32, Isa.AVX2),
        ("jki", 256, ElementType.F64, Isa.AVX2),
        ("kij", 4000, ElementType.F64, Isa.SSE2),
    ],
)
def test_schedules(order: str, n: int, element: ElementType, isa: Isa) -> None:
    machine = ZEN5 if isa is Isa.AVX512 else HASWELL
    region = product(order, dict.fromkeys("ijk", n), element)
    printed = [str(region.scop)]
    made = plan(region, machine, isa, observer=lambda name, state: printed.append(f"after {name}:\n{state}"))
    text = "\n\n".join((*printed, str(made), made.summary)) + "\n"
    golden = _FOLDER / f"{order}-{n}-{element.value}-{isa.value}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()
