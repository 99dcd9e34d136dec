"""Which cases every run tries, and which only ``make test-long`` does.

Example: ``@pytest.mark.parametrize("seed", some(range(90), 15))`` makes ninety tests. Fifteen of them, spread evenly,
belong to ``make check`` and ``make test``; the others carry the marker ``long``. No case is lost: the long run has all.
Of drawn cases beyond ``most`` the long run has ``most``, spread evenly, and all with MEMOPT_ALL_CASES=1.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest


def some(values: Iterable[Any], quick: int, ids: Iterable[str] | None = None, most: int | None = None) -> list[Any]:
    """``values`` of one argument for ``parametrize``; ``quick`` of them are not long. ``ids``: their names."""
    return some_rows(((value,) for value in values), quick, ids, most)


def some_rows(rows: Iterable[tuple[Any, ...]], quick: int, ids: Iterable[str] | None = None,
              most: int | None = None) -> list[Any]:
    """The same for several arguments: a row has a value for each. A value may also be a ``pytest.param`` of its own."""
    listed = list(rows)
    if most is not None and most < len(listed) and not os.environ.get("MEMOPT_ALL_CASES"):
        listed = [listed[number * len(listed) // most] for number in range(most)]
    names = list(ids) if ids is not None else [None] * len(listed)
    chosen = {number * len(listed) // quick for number in range(min(quick, len(listed)))}
    return [_parameter(row, name, number not in chosen)
            for number, (row, name) in enumerate(zip(listed, names, strict=True))]


def _parameter(row: tuple[Any, ...], name: str | None, long: bool) -> Any:
    marks = (pytest.mark.long,) if long else ()
    if len(row) == 1 and hasattr(row[0], "marks"):
        return pytest.param(*row[0].values, marks=(*row[0].marks, *marks), id=row[0].id)
    return pytest.param(*row, marks=marks, id=name)
