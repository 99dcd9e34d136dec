"""Nests of every kind that is replaced, each with its corner cases: replaced code runs, and nobody can tell.

Each nest is called again with the same sizes, with others, with one array over another, in another rounding mode.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.random_nests.check import check
from tests.support.random_nests.program import FLOAT, Call, Program
from tests.support.random_nests.written import add, for_, if_, local, program, put
from tests.support.random_nests.replacing import REPLACED

SIZES = (37, 37, 35, 37, 37, 2)
CALLS = tuple(Call(), )


def calls(*overlaps: tuple[str, str, int]) -> tuple[Call, ...]:
    return Call(), Call(fresh=False), Call(), Call(overlaps=overlaps), Call(mxcsr=0x7F80), Call()


NESTS: dict[str, Callable[[], Program]] = {}
