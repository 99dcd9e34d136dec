"""What the user asked for, as the driver gets it: plain values, checked by the command line.

Invariant: no field names an open file or a live process of memopt's own; the value can be printed and compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from memopt.ir.isa import Isa

# What ``--print-after`` can name: stages whose result has a text form, and the passes of passes.planning in order.
PRINTABLE = ("lift", "interchange", "vectorize", "register-tile", "tiling", "packing", "profitability", "legality",
             "plan", "generate")

FloatingPoint = Literal["exact", "fast"]


@dataclass(frozen=True, slots=True)
class Options:
    """One run of memopt.

    ``arguments`` is the program's argv as the user gave it (``memopt exec``; argv[0] is also what is searched in
    PATH), empty for ``memopt attach``, where ``pid`` is set instead. ``report`` and ``json`` are paths that can be
    opened for writing once, at the end. ``isa`` None means the widest the machine has. ``follow``:
    processes that the program starts are improved too. ``print_after`` holds names of passes.

    ``profile``: the program is only watched, and what was seen goes to this file; ``exact``: everything it executes is
    counted; ``elide``: but for what follows from registers; ``memory``: dependences, patterns and working sets are
    found as well, with ``dependences`` only the first of these, with ``reuse`` also reuse distances; ``trace``: all
    accesses to memory go to this file; ``affine``: hot nests are lifted to tell what they touch; ``paths``: acyclic
    paths are counted, all with ``exact``, else ``unhook`` of them in windows ``rehook`` cycles apart (None: so that
    windows take ``overhead`` percent of the time); ``values``: arguments, trip counts and cycles are told of every
    entry of functions and loops.
    """

    arguments: tuple[str, ...] = ()
    pid: int | None = None
    undo: bool = False
    fp: FloatingPoint = "exact"
    dry_run: bool = False
    quiet: bool = False
    verbose: bool = False
    shadow: bool = True
    isa: Isa | None = None
    print_after: tuple[str, ...] = ()
    follow: bool = False
    report: str | None = None
    json: str | None = None
    profile: str | None = None
    exact: bool = False
    elide: bool = True
    memory: bool = False
    dependences: bool = False
    reuse: bool = False
    trace: str | None = None
    affine: bool = False
    paths: bool = False
    unhook: int = 5000
    rehook: int | None = None
    overhead: float = 5.0
    values: bool = False
