"""Which versions of all trainings get into a file, and in which order they are asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from memopt.ir.isa import Isa
from memopt.session.rewriting.assembly import MOST, chosen
from memopt.session.rewriting.training import Trained

BIAS = 0x555555554000
OUTER, INNER, BESIDE = 0x1000, 0x1020, 0x2000
CODE = {OUTER: (OUTER, 0x60), INNER: (INNER, 0x20), BESIDE: (BESIDE, 0x30)}  # link-time address, bytes


def version(header: int = OUTER, isa: Isa = Isa.AVX2, seconds: float = 1.0, guard: str = "n = 5") -> Trained:
    start, size = CODE[header]
    region = SimpleNamespace(header=BIAS + header, guards=(guard,), code=((BIAS + start, bytes(size)),))
    return Trained(BIAS, "f", cast(Any, region), (), cast(Any, SimpleNamespace(isa=isa)), cast(Any, None),
                   cast(Any, None), None, 0, None, seconds)


def test_wide_vectors_are_asked_first_then_what_was_used_most() -> None:
    wide, often, seldom = version(isa=Isa.AVX512), version(seconds=3.0), version(guard="n = 7")
    narrow = version(isa=Isa.SSE2, seconds=9.0)
    assert chosen([narrow, seldom, often, wide]) == (wide, often, seldom, narrow)


def test_for_the_same_entries_the_most_used_one_stays() -> None:
    more, less = version(seconds=2.0), version(seconds=1.0)
    assert chosen([less, more]) == (more,)


def test_a_loop_gets_so_many_versions() -> None:
    given = [version(guard=f"n = {n}", seconds=n) for n in range(1, 12)]
    found = chosen([*given, version(BESIDE, seconds=0.5)])
    assert [v.seconds for v in found] == [*range(11, 11 - MOST, -1), 0.5]


@pytest.mark.parametrize(("first", "second"), [(OUTER, INNER), (INNER, OUTER)])
def test_a_patch_inside_the_code_of_another_version_is_left_out(first: int, second: int) -> None:
    """The code guard of the loop around it would fail at every entry."""
    preferred, beside = version(first, seconds=2.0), version(BESIDE, seconds=0.5)
    assert chosen([version(second), preferred, beside]) == (preferred, beside)
