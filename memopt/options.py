"""The options of one run of memopt, as the driver gets them: plain values that the command line has checked.

Example: ``memopt exec --quiet -- ./dgemm 2048`` is ``Options(arguments=("./dgemm", "2048"), quiet=True)``.

Invariant: no field names an open file or a live process of memopt itself; the value can be printed and compared.
"""

from __future__ import annotations

from typing import Literal

from memopt.ir.frozen import dataclass
from memopt.ir.isa import Isa

# Names that ``--print-after`` takes, in order: the passes of memopt.lifting.lift over statements, stages whose result
# has a text form, and the passes of passes.planning.
PRINTABLE = ("split-elements", "overlapping-copies", "splat-constants", "operand-order", "reroll", "trim",
             "floor-divisions", "lift", "interchange", "vectorize", "register-tile", "tiling", "packing",
             "profitability", "legality", "plan", "generate")

FloatingPoint = Literal["exact", "fast"]


# The modes of ``memopt profile``:
# sampled: the time of functions and loops, by sampling.
# affine: also the statements of hot nests, and the working sets that their subscripts imply.
# exact: counts of instructions, iterations and calls.
# memory: also dependences, access patterns and working sets.
# dependences: counts, and dependences.
# values: counts, and arguments, trip counts and cycles of all entries of functions and loops.
# paths: how often each acyclic path was taken.
ProfileMode = Literal["sampled", "affine", "exact", "memory", "dependences", "values", "paths"]


@dataclass(frozen=True, slots=True)
class Keeping:
    """Which nest is kept in a snapshot, the file ``path``: the first one whose trial finds a difference (``mismatch``),
    or the hottest that would be replaced. ``nest``: a function or an address, "" for any; ``limit``: bytes of pages."""

    path: str
    mismatch: bool = False
    nest: str = ""
    limit: int = 64 << 20


@dataclass(frozen=True, slots=True)
class Options:
    """One run of memopt."""

    arguments: tuple[str, ...] = ()  # the program's argv as the user gave it; argv[0] is searched in PATH
    pid: int | None = None  # the process of ``memopt attach``, which has no ``arguments``
    undo: bool = False
    fp: FloatingPoint = "exact"
    dry_run: bool = False
    quiet: bool = False
    verbose: bool = False
    shadow: bool = True  # a version is tried in copies of the process before it is installed
    isa: Isa | None = None  # None: the widest that the machine has
    print_after: tuple[str, ...] = ()  # names of PRINTABLE
    snapshot: Keeping | None = None  # keep the inputs of a nest
    cache: bool = True  # start from the plans of earlier runs, and keep those of this one (memopt.plans)
    follow: bool = False  # improve the processes that the program starts, too
    report: str | None = None  # a path that can be opened for writing once, at the end; so is ``json``
    json: str | None = None
    profile: str | None = None  # profile the program instead of improving it; the path of the profile
    mode: ProfileMode = "sampled"
    elide: bool = True  # modes that count: compute counts from a loop's registers where they determine them
    reuse: bool = False  # mode memory: also find reuse distances
    trace: str | None = None  # modes exact, memory, dependences: write all memory accesses to this file
    unhook: int = 5000  # mode paths: paths counted in one window; 0: one window without end, which counts all paths
    rehook: int | None = None  # mode paths: cycles from one window to the next; None: as ``overhead`` allows
    overhead: float = 5.0  # mode paths: the share of the time that windows may take, in percent
