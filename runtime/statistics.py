"""What a version counts while a program runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counters as in memopt.ir.code; cycles are time-stamp-counter ticks."""

    entries: int
    runs: int
    iterations: int
    cycles: int
