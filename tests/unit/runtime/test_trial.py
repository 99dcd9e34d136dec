"""What trial copies get for themselves before anything is timed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import pytest

from memopt.ir.linear import Linear
from memopt.ir.region import Footprint, Interval, Region, Trips
from memopt.ir.scop import Scop
from runtime.shadow import Shadow
from runtime.trial import MOST_COPIED, _copy_results


@dataclass
class Pages:
    """A shadow's memory of ever the same byte."""

    written: list[tuple[int, int]] = field(default_factory=list)

    def read(self, _address: int, size: int) -> bytes:
        return b"x" * size

    def write(self, address: int, data: bytes) -> None:
        assert data == b"x" * len(data)
        self.written.append((address, len(data)))


def _copied(size: int, trips: int, iterations: int) -> list[tuple[int, int]]:
    base = Linear.symbol("p")
    footprints = (Footprint("A", Interval(base, base + Linear.symbol("R", size)), True),
                  Footprint("B", Interval(base - 8, base), False))
    region = Region(0, b"", (), Trips(Linear.of(trips), 1), (), (), footprints, Scop((), ()))
    pages = Pages()
    _copy_results(cast(Shadow, pages), region, {"p": 4096, "R": trips}, iterations)
    return pages.written


@pytest.mark.parametrize(("trips", "expected"), [(5, 5), (10, 10), (1000, 10)])
def test_only_what_is_written_in_the_trial_is_copied(trips: int, expected: int) -> None:
    assert _copied(4096, trips, 10) == [(4096, 4096 * expected)]


def test_large_results_are_left_to_the_faults() -> None:
    assert _copied(MOST_COPIED // 10 + 8, 1000, 10) == []
