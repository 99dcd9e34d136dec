"""Random nests with random surroundings: threads, handlers, forks, memory and code that change, limits.

More of them: ``python -m tests.support.surroundings --count 2000 --replaced --jobs 2``.
"""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import count

import pytest

from tests.support.surroundings.__main__ import run
from tests.support.surroundings.check import Checked, check
from tests.support.surroundings.draw import draw, drawn_kinds
from tests.support.surroundings.kinds import KINDS
from tests.support.surroundings.known import KNOWN
from tests.support.tools import need

COUNT, FIRST, JOBS = int(os.environ.get("MEMOPT_SURROUNDINGS", "60")), 1, 2
LEAST_ACTED = 0.6  # of the programs

pytestmark = pytest.mark.timeout(3600)


@pytest.fixture(scope="module")
def found() -> list[Checked]:
    need("gcc")
    need("clang")
    return list(run(count(FIRST), JOBS, count=COUNT))


def test_the_same_as_natively(found: list[Checked]) -> None:
    assert {c.seed: (c.build, c.acts, c.wrong) for c in found if c.wrong and KNOWN.isdisjoint(c.blamed)} == {}


def test_the_programs_do_not_depend_on_time(found: list[Checked]) -> None:
    assert {c.seed: (c.build, c.acts, c.unsound) for c in found if c.unsound} == {}


def test_surroundings_acted_on_new_code(found: list[Checked]) -> None:
    assert sum(bool(c.acted) for c in found) >= LEAST_ACTED * len(found)


def test_every_kind_is_drawn() -> None:
    assert {kind for seed in range(1, 400) for kind in drawn_kinds(seed)} == set(KINDS)


def test_a_wrong_version_is_noticed(found: list[Checked]) -> None:
    """The lifted statements add where they should subtract, and there is no trial."""
    acted = [c.seed for c in found if c.acted][:4]
    wrong = [check(replace(draw(seed), way="wrong")) for seed in acted]
    assert sum(bool(c.wrong) for c in wrong) >= len(acted) // 2
