"""What is outside the promise is said alike wherever a user looks, and each assumption has a seeded fault."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from memopt.promise import OUTSIDE, Outside, explanation
from tests.mutation.faults import FAULTS

_ROOT = Path(__file__).parents[3]
_ROWS = [[cell.strip() for cell in line.strip("|").split("|")]
         for line in (_ROOT / "docs/promise.md").read_text().splitlines() if line.startswith("|")][2:]


@pytest.mark.parametrize("outside", OUTSIDE, ids=lambda o: o.case[:30])
def test_the_readme_names_every_case(outside: Outside) -> None:
    assert outside.case in " ".join((_ROOT / "README.md").read_text().split())
    assert outside.case in explanation()


@pytest.mark.parametrize("row", _ROWS, ids=lambda r: r[0][:30])
def test_each_assumption_has_a_fault_that_a_test_notices(row: list[str]) -> None:
    assert row[4] in {fault.name for fault in FAULTS}


@pytest.mark.parametrize("path", sorted({p for r in _ROWS for p in re.findall(r"`([a-z_/]+(?:\\.py)?)`", r[1])}))
def test_the_files_that_check_exist(path: str) -> None:
    if "/" in path:
        assert any((_ROOT / folder / path).exists() for folder in ("", "memopt")) or (
            (_ROOT / "memopt" / f"{path}.py").exists())
