"""Working sets beside caches."""

from __future__ import annotations

import pytest

from memopt.report.memory import bar

CACHES = [(1, 32 << 10), (2, 512 << 10), (3, 32 << 20)]


@pytest.mark.parametrize(("kib", "expected"), [
    (0.0, "         1   2     3      "), (1.0, "####     1   2     3      "), (32.0, "#########1   2     3      "),
    (100_000.0, "#########1###2#####3#     "), (1e12, "#########1###2#####3######"),
])
def test_a_bar(kib: float, expected: str) -> None:
    assert bar(kib, CACHES) == expected
