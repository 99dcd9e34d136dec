"""Nests in libraries that others have compiled, called from an interpreter."""

from __future__ import annotations

import sys

import pytest

from bench.measure.execution import run, run_under_memopt
from tests.support.waiting import PATIENCE

INTEGERS = """
import numpy
from tests.support.waiting import PATIENCE
generator = numpy.random.default_rng(1)
a, b = (generator.integers(-9, 9, (431, 431)) for _ in range(2))
for _ in range(100):
    c = a @ b
print(c.sum(), (c * (numpy.arange(431) % 7)).sum())
"""


@pytest.mark.long
def test_products_of_integers_in_an_interpreters_library() -> None:
    """The nest is in a loop over products of one iteration, the header of which is never reached again."""
    # Two stores of the nest may not change places where other threads could see them, and OpenBLAS has threads.
    command = ("env", "OPENBLAS_NUM_THREADS=1", sys.executable, "-c", INTEGERS)
    native, trial = run(command, PATIENCE), run_under_memopt(command, PATIENCE)
    assert trial.same_result(native), trial.stderr
    assert any("matmul" in str(loop["function"]) for loop in trial.replaced), trial.stderr
