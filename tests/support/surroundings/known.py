"""Kinds of surroundings at which programs are known to go wrong: to be emptied as the faults are mended."""

from __future__ import annotations

KNOWN: frozenset[str] = frozenset()
