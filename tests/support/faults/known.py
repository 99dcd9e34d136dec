"""Programs that are known not to pass: to be emptied as the faults are mended."""

from __future__ import annotations

KNOWN: frozenset[str] = frozenset()
