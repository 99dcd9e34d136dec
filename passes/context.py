"""What every scheduler is told about the world: the machine, the instruction set, what is allowed and expected."""

from __future__ import annotations

from dataclasses import dataclass

from memopt.ir.isa import Isa
from memopt.machine.description import Machine

# Trips of the patched loop where nobody says: its count is a run-time value, taken as large.
UNKNOWN_TRIPS = 4096


@dataclass(frozen=True, slots=True)
class Context:
    """What a pass may ask about the world. ``fp``: "exact" or "fast". ``trips``: the patched loop's trip count that
    was seen, for the model only (a version serves any). ``packed``: bytes of the vectors that the original computes
    with, 0 where it computes with single numbers."""

    machine: Machine
    isa: Isa
    fp: str = "exact"
    trips: int = UNKNOWN_TRIPS
    packed: int = 0
