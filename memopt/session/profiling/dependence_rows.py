"""The rows of dependences: with the names of contexts, loops and instructions, and what they mean to the loop.

Example: a counter that the compiler has spilled gives a RAW row with ``induction``; ``h[k[i]] += 1`` gives rows with
``reduction``. In: the dependences of all threads. Out: rows of ``dependence`` and of ``carried``.

A sum counts as one only if its loop reads the cell for nothing else: neither with another instruction nor in a function
that it calls. Dependences that the loops around it carry do not count: by then the sum is complete.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from memopt.ir.frozen import dataclass
from memopt.ir.graph import Loop
from memopt.session.profiling.count_rows import Static
from memopt.session.profiling.recurrence_rows import LoopRecurrences
from memopt.traces.dependences.dependences import Kind
from runtime.recording.translation.unit import Unit


@dataclass(frozen=True, slots=True)
class Place:
    """An access: its unit, the address of its instruction, the number of its context."""

    unit: Unit
    address: int
    context: int


@dataclass(frozen=True, slots=True)
class Carrier:
    """The loop that carries a dependence, by its unit and its index there; the number of its context."""

    unit: Unit
    index: int
    context: int | None

    @property
    def loop(self) -> Loop:
        return self.unit.nesting.loops[self.index]


@dataclass(frozen=True, slots=True)
class Placed:
    """A dependence between two places."""

    kind: Kind
    source: Place
    sink: Place
    carrier: Carrier | None
    least: int
    most: int
    count: int


@dataclass(frozen=True, slots=True)
class DependenceRows:
    """Makes the rows. ``last``: the highest number of a context called from the one with a number."""

    static: Static
    last: Mapping[int, int]
    recurrences: LoopRecurrences
    reads: Mapping[tuple[int, int], Sequence[Placed]]  # RAW dependences by the source: context and instruction
    exchanges: Mapping[int, Sequence[Placed]]  # by unit: RAW and WAR dependences of its instructions
    serial: dict[int, int] = field(default_factory=dict)  # by loop: the least distance of a RAW dependence it carries

    def all(self, found: Sequence[Placed]) -> Iterator[tuple[object, ...]]:
        """The rows of ``dependence``. Those of a loop that is serial by one of them are not looked at further."""
        site = self.static.site
        for one in sorted(found, key=lambda one: (one.kind is not Kind.RAW, one.source.unit is one.sink.unit)):
            context, loop = (None, None) if one.carrier is None else (
                one.carrier.context, self.static.loop(one.carrier.unit, one.carrier.index))
            known = loop is not None and loop in self.serial and (
                one.kind is not Kind.RAW or self.serial[loop] <= one.least)
            sums, steps = (False, False) if known else self._marks(one)
            if loop is not None and one.kind is Kind.RAW and not (sums or steps):
                self.serial[loop] = min(one.least, self.serial.get(loop, one.least))
            yield (one.kind.name, one.source.context, site(one.source.unit, one.source.address), one.sink.context,
                   site(one.sink.unit, one.sink.address), context, loop, one.least, one.most, one.count, sums, steps)

    def write_carried(self, connection: sqlite3.Connection, units: Sequence[Unit]) -> None:
        """Writes the rows of ``carried`` for the loops that have repeated anything, but for those whose iterations wait
        for the one before them in any case."""
        repeated = {loop for (loop,) in connection.execute(
            "SELECT DISTINCT loop FROM context_loop WHERE iterations > entries")}
        for unit in units:
            for index, loop in enumerate(unit.nesting.loops):
                row = self.static.loop(unit, index)
                if row is not None and row in repeated and self.serial.get(row, 2) > 1:
                    repeated.discard(row)
                    carried = self.recurrences.of(unit.number).carried(loop, frozenset(self._exchange(unit, loop)))
                    connection.executemany("INSERT INTO carried VALUES (?, ?, ?)", sorted(
                        {(row, found.location.partition(".")[0], found.recurrence.value) for found in carried}))

    def _exchange(self, unit: Unit, loop: Loop) -> Iterator[int]:
        """The instructions of ``unit`` that read what is written in the same entry of ``loop``, and those that write
        it."""
        for one in self.exchanges.get(unit.number, ()):
            for place, other in ((one.source, one.sink), (one.sink, one.source)):
                if place.unit is unit and self._within(loop, place, other, one.carrier):
                    yield place.address

    def _marks(self, found: Placed) -> tuple[bool, bool]:
        """Whether it is a dependence of a sum, and whether of an induction."""
        unit, context, carrier = found.source.unit, found.source.context, found.carrier
        if carrier is None or not context == found.sink.context == carrier.context or (
                not unit is found.sink.unit is carrier.unit):
            return False, False
        first, second = found.source.address, found.sink.address
        known, loop = self.recurrences.of(unit.number), carrier.loop
        if known.is_induction(loop, first, second):
            return False, True
        return known.is_sum(loop, first, second) and not any(
            self._within(loop, read.source, read.sink, read.carrier) and not (
                read.sink.unit is unit and read.sink.context == context
                and known.is_sum(loop, address, read.sink.address))
            for address in sorted({first, second}) for read in self.reads.get((context, address), ())), False

    def _within(self, loop: Loop, one: Place, other: Place, carrier: Carrier | None) -> bool:
        """Whether ``one``, an access of the function with ``loop``, and ``other`` may happen in the same entry of the
        loop. ``carrier``: what carries the dependence between them."""
        if one.unit.block_around(one.address) not in loop.blocks:
            return False
        if carrier is not None and carrier.unit is one.unit and carrier.context == one.context and (
                loop.header in carrier.loop.blocks and carrier.loop.header != loop.header):
            return False
        if other.unit is one.unit and other.context == one.context:
            return other.unit.block_around(other.address) in loop.blocks
        return one.context <= other.context <= self.last.get(one.context, 0)  # in a function that it may have called
