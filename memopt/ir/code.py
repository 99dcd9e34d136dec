"""The machine code of a version, and where it lies in the target.

In: addresses that runtime.patching reserves. Out, made by passes.version: the bytes, their entry point and a listing.
The layouts at the end are shared by the generated code, which counts and saves there, and by the runtime, which reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.ir.frozen import dataclass

if TYPE_CHECKING:
    from memopt.ir.plan import NestPlan
    from memopt.ir.region import Region


@dataclass(frozen=True, slots=True)
class Placement:
    """Addresses in the target, fixed before code generation; sizes in bytes."""

    # Read-execute pages within rel32 reach of the header.
    code: int
    code_size: int
    # Private read-write pages within rel32 reach of ``code``: saved registers, symbol values, the xsave area.
    frame: int
    frame_size: int
    # A shared read-write page within rel32 reach of ``code``. memopt can read it even after the target has ended.
    statistics: int
    # Private read-write pages anywhere, for packed panels and private arrays.
    scratch: int
    scratch_size: int
    # The code is for a file, or tried for one: it holds no address, ``scratch`` is within rel32 reach of ``code`` too,
    # and the frame may start as zeros (passes.version.file_entry).
    in_file: bool = False


@dataclass(frozen=True, slots=True)
class CompiledRegion:
    """A version of a region: its machine code for one placement."""

    region: Region
    plan: NestPlan
    placement: Placement
    code: bytes  # to be written at ``placement.code``
    entry: int  # the absolute address that the patch jumps to
    scratch_needed: int  # bytes
    listing: str  # the disassembly with labels (golden tests, ``--print-after``)
    parts: tuple[Region, ...] = ()  # the region of each part of the plan
    kernel: int = 0  # the absolute address of the kernel


# Layout of the statistics page: offsets of little-endian 64-bit counters.
STATISTICS_ENTRIES = 0  # how often the guard was reached
STATISTICS_RUNS = 8  # how often the guards held and the version ran
STATISTICS_ITERATIONS = 16  # outer iterations that the version ran: the sum of H
STATISTICS_BYTES = 24  # of all counters

# Layout of the frame page.
FRAME_BUSY = 0  # 64-bit flag: the version is running (a signal handler that re-enters runs the original)
FRAME_RETIRED = (1 << 64) - 1  # in FRAME_BUSY: the version was taken out, and nobody gets the lock any more
FRAME_LIMIT = 8  # 64-bit: upper bound on H; 2**63 - 1 at first, a trial in a copy lowers it to run a slice
FRAME_CHUNK = 16  # 64-bit: iterations after which the version goes through its guards again; 2**63 - 1 at first
FRAME_HOLDER = 24  # 64-bit: the stack pointer of the entry that holds the frame, 0 while nobody does
