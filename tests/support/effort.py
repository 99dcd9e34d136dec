"""Which cases every run tries, and which only ``make test-long`` does.

Example: ``@pytest.mark.parametrize("seed", some(range(90), 15))`` makes ninety tests. Fifteen of them, spread evenly,
belong to ``make check`` and ``make test``; the others carry the marker ``long``. No case is lost: the long run has all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def some(cases: Iterable[Any], quick: int, ids: Iterable[str] | None = None) -> list[Any]:
    """Parameters for ``parametrize``: all ``cases``, of which ``quick`` are not long.

    A case is a value, a tuple of values, or a ``pytest.param``. ``ids``: names of the cases, in order.
    """
    listed = list(cases)
    names = list(ids) if ids is not None else [None] * len(listed)
    chosen = {number * len(listed) // quick for number in range(min(quick, len(listed)))}
    return [_parameter(case, name, number not in chosen)
            for number, (case, name) in enumerate(zip(listed, names, strict=True))]


def _parameter(case: Any, name: str | None, long: bool) -> Any:
    marks = (pytest.mark.long,) if long else ()
    if hasattr(case, "values") and hasattr(case, "marks"):
        return pytest.param(*case.values, marks=(*case.marks, *marks), id=case.id)
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=marks, id=name)
