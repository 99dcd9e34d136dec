"""Random affine nests: with their loops replaced they leave the same memory, exception flags and results.

More of them: ``python -m tests.support.random_nests --count 5000 --jobs 2``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from memopt.ir.scop import Apply, Expression
from memopt.lifting.lift import Lifted, lift_region
from tests.support.random_nests.check import check
from tests.support.random_nests.draw import draw
from tests.support.random_nests.pool import Summary, run
from tests.support.tools import need

COUNT, IN_FILES = 200, 40
# Minima under denormals-are-zeros, a widened value that guards could not read, two candidates with the same header, a
# register that one part of a nest reads when another has computed in it, a lane that is compared in vain, a
# subscript that waits for its number, conversions between integers and single precision by way of double precision:
# to a float, which rounds twice, and from one, which minds denormal numbers.
ONCE_WRONG = (1002050, 1003161, 5000010, 2001306, 2000434, 40004174, 9201184, 9300818)
LEAST_REPLACED = 0.6  # of the programs above -O0

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def summaries() -> list[Summary]:
    for compiler in ("gcc", "clang"):
        need(compiler)
    return run([*range(1, COUNT + 1), *ONCE_WRONG], jobs=2)


def test_same_memory_flags_and_results(summaries: list[Summary]) -> None:
    assert {s.seed: (s.build, s.wrong) for s in summaries if s.wrong} == {}


def test_nothing_fails_inside(summaries: list[Summary]) -> None:
    assert {s.seed: (s.build, s.internal) for s in summaries if s.internal} == {}


def test_replaced_code_ran(summaries: list[Summary]) -> None:
    above = [s for s in summaries if "-O0" not in s.build]
    assert sum(s.replaced for s in above) >= LEAST_REPLACED * len(above)


def test_the_same_in_a_rewritten_file() -> None:
    """The versions are made for a file, where nobody prepares their frames, and run there without memopt."""
    found = run(range(3001, 3001 + IN_FILES), jobs=2, files=True)
    assert {s.seed: (s.build, s.wrong, s.internal) for s in found if s.wrong or s.internal} == {}
    above = [s for s in found if "-O0" not in s.build]
    assert sum(bool(s.in_file) for s in above) >= LEAST_REPLACED * len(above)


def test_a_wrong_version_is_noticed(summaries: list[Summary], monkeypatch: pytest.MonkeyPatch) -> None:
    """The lifted statements add where they should subtract, and the other way round."""

    def wrong(*arguments: Any) -> Lifted:
        lifted = lift_region(*arguments)
        scop = lifted.region.scop
        statements = tuple(replace(s, expression=_other_sign(s.expression)) for s in scop.statements)
        return replace(lifted, region=replace(lifted.region, scop=replace(scop, statements=statements)))

    monkeypatch.setattr("memopt.lifting.lift.lift_region", wrong)
    replaced = [s.seed for s in summaries if s.replaced][:8]
    found = check([draw(seed) for seed in replaced])
    assert sum(bool(c.wrong) for c in found) >= len(replaced) // 2


def _other_sign(expression: Expression) -> Expression:
    if not isinstance(expression, Apply):
        return expression
    operator = {"add": "sub", "sub": "add"}.get(expression.operator, expression.operator)
    return replace(expression, operator=operator, operands=tuple(map(_other_sign, expression.operands)))
