"""Entries of the plan cache, made by hand."""

from __future__ import annotations

from memopt.plans.entries import Entry, Stored, StoredPlan, StoredRefusal
from memopt.plans.identity import FileIdentity

PLAN = StoredPlan("region <file+0x10>", "nest\nplan", "0" * 64, 1.0, 0.25, 7, True, 100.0, used=1)
STORED = Stored(("memopt 1",), FileIdentity(100, "ab", "1" * 64),
                (Entry(0x10, ((0x10, 4),), "2" * 64, PLAN),
                 Entry(0x20, ((0x20, 4), (0x30, 1)), "3" * 64, StoredRefusal("non-affine", 'at 0x20 "x"', 2, 1))))


def entry(header: int, what: StoredPlan | StoredRefusal) -> Entry:
    """An entry for the loop at ``header``."""
    return Entry(header, ((header, 4),), "0" * 64, what)
