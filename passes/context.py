"""The target description that every scheduler gets: machine, instruction set, floating-point mode, expected trip count.

``planning`` makes one ``Context`` for each nest; the passes read it and do not change it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from memopt.ir.frozen import dataclass
from memopt.ir.isa import Isa
from memopt.machine.description import Machine

# Trip count of the patched loop where none was observed: it is a run-time value and is assumed to be large.
UNKNOWN_TRIPS = 4096


@dataclass(frozen=True, slots=True)
class Context:
    """The properties of the target that passes may use. Nothing in it decides what is legal."""

    machine: Machine
    isa: Isa
    # "exact", or "fast": a multiplication and an addition may become one fused operation.
    fp: str = "exact"
    # Trip count of the patched loop that was observed. Only the cost models use it: a version serves any trip count.
    trips: int = UNKNOWN_TRIPS
    # Bytes of the vectors that the original computes with; 0 where it is scalar code.
    packed: int = 0
    # Values of live-in symbols at the captured entry, for bounds that differ between entries. For cost models alone.
    entry: Mapping[str, int] = field(default_factory=dict)
