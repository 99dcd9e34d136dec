"""One nest of every kind: replaced code runs, and nobody can tell from memory, exception flags or results."""

from __future__ import annotations

import pytest

from tests.support.random_nests.check import Checked, check
from tests.support.random_nests.chosen import NESTS, chosen
from tests.support.random_nests.program import DOUBLE, FLOAT

KINDS = {"double": DOUBLE, "float": FLOAT}
PREFERENCES = ("contractions", "loops")


@pytest.fixture(scope="module", params=[f"{p} {k}" for p in PREFERENCES for k in KINDS])
def checked(request: pytest.FixtureRequest) -> dict[str, Checked]:
    prefer, kind = request.param.split()
    programs = chosen(kind=KINDS[kind], prefer=prefer, small_caches=kind == "float", specials=True)
    return dict(zip(programs, check(list(programs.values())), strict=True))


@pytest.mark.parametrize("name", NESTS)
def test_replaced_and_the_same(checked: dict[str, Checked], name: str) -> None:
    found = checked[name]
    assert (found.wrong, found.internal) == ("", [])
    assert found.replaced, found.loops
