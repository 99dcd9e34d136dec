"""What the loops that ran carry in registers and frame slots (``memopt.recurrences``).

Example: a loop that calls ``row(i)`` carries nothing in xmm0, since ``row`` does not read it. In: the units of code,
and the calling contexts and counts that are in the profile already: they tell which functions each call has called.
Out: the recurrences of the loops of each unit, found when somebody asks for them.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Collection, Sequence

from memopt.recurrences.callees import NOT_KNOWN, Callee, Callees, Code
from memopt.recurrences.recurrences import Recurrences
from memopt.recurrences.values import Values, lifted
from memopt.session.profiling.count_rows import Static
from runtime.recording.translation.unit import Unit


class LoopRecurrences:
    """The recurrences of the loops of ``units``. ``shared``: instructions whose values called functions
    read or write."""

    def __init__(self, connection: sqlite3.Connection, static: Static, units: Sequence[Unit],
                 shared: frozenset[int]) -> None:
        self._static, self._shared = static, shared
        self._by_number = {unit.number: unit for unit in units}
        self._by_entry = {static.function(unit)[1:]: unit for unit in units}
        self._of_entry = {unit.graph.entry: unit for unit in units}
        self._ran = {(image, start) for image, start in connection.execute(
            "SELECT image, start FROM execution WHERE count > 0")}
        self._called: dict[tuple[int, int], set[tuple[int, int]]] = {}
        for image, site, other, entry in connection.execute("""SELECT DISTINCT p.image, c.site, c.image, c.entry
                FROM context c JOIN context p ON p.id = c.parent WHERE c.site IS NOT NULL"""):
            self._called.setdefault((image, site), set()).add((other, entry))
        self._callees = Callees(self._code)
        self._code_of = functools.cache(self._unit_code)
        self.of = functools.cache(self._of)

    def _code(self, entry: int) -> Code | None:
        unit = self._of_entry.get(entry)
        return None if unit is None else self._code_of(unit.number)

    def _unit_code(self, number: int) -> Code:
        unit = self._by_number[number]
        return Code(unit.graph, {start: lifted(block) for start, block in unit.graph.blocks.items()},
                    lambda call: self._entries(unit, call))

    def _entries(self, unit: Unit, call: int) -> Collection[int] | None:
        """The entries of the functions that the call has called; none if it never ran, None if that is not known."""
        image, site = self._static.function(unit)[1], self._static.site(unit, call)
        if image is None or site is None:
            return None
        called = self._called.get((image, site))
        if called is None:
            start = unit.block_around(call)
            ran = start is None or (image, self._static.site(unit, start)) in self._ran
            return None if ran else ()
        units = [self._by_entry.get(place) for place in called]
        return None if None in units else [found.graph.entry for found in units if found is not None]

    def _of(self, number: int) -> Recurrences:
        code, unit = self._code_of(number), self._by_number[number]

        def callee(call: int) -> Callee:  # what calls outside loops do to registers is of no interest
            return NOT_KNOWN if unit.loop_around(call) is None else self._callees.of_call(code, call)

        return Recurrences(Values(code.graph, code.pieces, functools.cache(callee), self._shared),
                           unit.nesting)
