"""Programs and libraries of Debian; ``python -m tests.support.rewritten_packages`` runs the whole list."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.support.effort import some
from tests.support.rewritten_packages import TOOLS, Case, cases, tried

CASES = [pytest.param(case, id=f"{os.path.basename(case.file)} {number}") for number, case in enumerate(cases())]


@pytest.mark.parametrize("case", some(CASES, 2, most=10))
def test_they_run_as_before(case: Case) -> None:
    found = tried(case, [tool for tool in TOOLS if shutil.which(tool)])
    assert not found.failed
    assert {found.rewritten, *found.after} <= {"the same", "original too"}
