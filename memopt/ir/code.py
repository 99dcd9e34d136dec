"""Machine code made for a region, and where its memory lies in the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memopt.ir.plan import NestPlan
    from memopt.ir.region import Region


@dataclass(frozen=True, slots=True)
class Placement:
    """Addresses in the target, fixed before code generation.

    ``code``: read-execute pages, within rel32 reach of the header. ``frame``: private read-write page(s) within
    rel32 reach of ``code``: saved registers, symbol values, xsave area. ``statistics``: shared read-write page
    within rel32 reach of ``code``, readable by memopt even after the target ended. ``scratch``: private
    read-write, anywhere, for packed panels.
    """

    code: int
    code_size: int
    frame: int
    frame_size: int
    statistics: int
    scratch: int
    scratch_size: int


@dataclass(frozen=True, slots=True)
class CompiledRegion:
    """``code`` is to be written at ``placement.code``; ``entry`` is the absolute address the patch jumps to.

    ``listing`` is the disassembly with labels (golden tests, ``--print-after``). ``scratch_needed`` in bytes.
    """

    region: Region
    plan: NestPlan
    placement: Placement
    code: bytes
    entry: int
    scratch_needed: int
    listing: str


# Layout of the statistics page: offsets of little-endian 64-bit counters.
STATISTICS_ENTRIES = 0  # times the guard was reached
STATISTICS_RUNS = 8  # times the version ran (guards passed)
STATISTICS_ITERATIONS = 16  # outer iterations run by the version (sum of H)
STATISTICS_CYCLES = 24  # time-stamp-counter ticks spent in the version, guard excluded

# Layout of the frame page.
FRAME_BUSY = 0  # 64-bit flag: the version is running (a signal handler that re-enters runs the original)
FRAME_LIMIT = 8  # 64-bit: upper bound on H; starts as 2**63 - 1, a shadow run lowers it for a slice
