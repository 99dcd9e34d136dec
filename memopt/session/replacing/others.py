"""Loops that others may wait for: a handler, a thread or another process changes a cell that the loop reads again and
again, or reads a cell in which the loop stores how far it is.

Example: ``while (!stop) for (i...) for (j...) ...`` ends when a handler sets ``stop``. A version reads ``stop`` once,
in its guard. So it must come back to its guard within milliseconds, however many iterations are left.

In: a region, the code of its function, the captured values, the mappings. Out: the region with
``Region.returns_often``. A cell on the stack counts only where its function may hand out addresses of its stack, and
one in memory that nobody may write does not count.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from memopt.ir.region import Cell, Disjoint, Progression, Region, Rejoin, Relation
from memopt.ir.scop import TRIPS
from memopt.models.work import Work
from runtime.target.memory import mapping_at

if TYPE_CHECKING:
    from memopt.session.replacing.site import Site
    from runtime.target.memory import Mapping as MemoryMapping

RETURN_SECONDS = 0.02  # from one passage of the guards to the next
LEAST_STEPS = 16
INSTANCE_SECONDS = 1e-9  # of one statement instance, where no trial was made
_STACK_ADDRESS = re.compile(r"lea (?!rsp).*\[r[sb]p\b|(?:mov|add|sub|or) (?!rsp).*, r[sb]p$|push rsp$")


def returning(region: Region, site: Site, values: Mapping[str, int], maps: Iterable[MemoryMapping]) -> Region:
    """``region``, with ``returns_often`` where others may wait for it. ``values``: the captured live-in values."""
    found = tuple(maps)
    handed_out = hands_out_stack(site)
    needed = _control_symbols(region)
    read = any(isinstance(x.location, Cell) and x.symbol in needed and (handed_out or x.location.base != "rsp")
               and _writable(x.location, values, found) for x in region.live_ins)
    told = any(_tells(r) or (handed_out and isinstance(r.location, Cell)) for r in region.rejoin)
    return replace(region, returns_often=read or told)


def chunk(region: Region, values: Mapping[str, int], pace: float | None) -> int | None:
    """Outer iterations that a version may run before it goes through its guards again; None: as many as there are.

    ``values``: live-in values of a typical entry. ``pace``: seconds of an iteration, None if they were not measured.
    Where the loop stores how far it is, that moves at least ``LEAST_STEPS`` times in such an entry.
    """
    if not region.returns_often:
        return None
    trips = region.trips.numerator.evaluate(values) // region.trips.divisor
    if pace is None:
        pace = INSTANCE_SECONDS * Work(region.scop, {**values, TRIPS: trips}).mean
    found = math.floor(RETURN_SECONDS / max(pace, 1e-12))
    return max(1, min(found, trips // LEAST_STEPS) if any(map(_tells, region.rejoin)) else found)


def _tells(rejoin: Rejoin) -> bool:
    """Whether the rejoin stores to a cell that is not the loop's own, on its stack."""
    return isinstance(rejoin.location, Cell) and rejoin.location.base != "rsp"


def hands_out_stack(site: Site) -> bool:
    """Whether the function computes an address of its stack, which it may hand to others: a handler, a thread."""
    return any(text != "mov rbp, rsp" and _STACK_ADDRESS.match(text) is not None
               for block in site.graph.blocks.values()
               for text in (f"{i.mnemonic} {i.operands_text}" for i in block.instructions))


def _control_symbols(region: Region) -> set[str]:
    """The live-in symbols that trip counts, bounds, conditions, guards and addresses depend on."""
    linear = [region.trips.numerator, *(a.base for a in region.scop.arrays)]
    for statement in region.scop.statements:
        linear += [d.trips for d in statement.dimensions] + list(statement.conditions)
        linear += [s for a in (statement.write, *statement.reads) for s in a.subscripts]
    for guard in region.guards:
        match guard:
            case Relation(expression):
                linear.append(expression)
            case Disjoint(first, second):
                linear += [first.low, first.high, second.low, second.high]
            case Progression(within=within):
                linear += [within.low, within.high]
    return {s for x in linear for s in x.symbols}


def _writable(cell: Cell, values: Mapping[str, int], maps: tuple[MemoryMapping, ...]) -> bool:
    base = values.get(cell.base, None) if cell.base else 0
    mapping = None if base is None else mapping_at(maps, base + cell.displacement)
    return mapping is None or mapping.writable
