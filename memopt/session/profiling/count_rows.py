"""The rows of exact counts: how often code ran, and the calling context tree with the loops of each context.

Example: ``main`` calls ``f`` from a loop, 1000 times, and ``g`` calls ``f`` once: ``f`` has two contexts, with 1000 and
1 entries. In: the counters of edges (``Counted``), by node of the tree and unit of code. Out: rows of ``execution``,
``context`` and ``context_loop``. Counts of blocks and loops follow from those of some edges by Kirchhoff's law.

A context is a function, not a unit of code: what a unit counts that begins in the middle of a function, where a jump
has led to (``goto *label``, a caught exception), belongs to the function's context.
"""

from __future__ import annotations

import bisect
import itertools
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy

from memopt.cfg.loop_nesting import Nesting
from memopt.instrumentation.edge_counters import Counts, Place
from memopt.ir.frozen import dataclass
from memopt.ir.graph import Loop
from runtime.recording.recorder import Counted
from runtime.recording.translation.code_map import Text
from runtime.recording.translation.unit import Unit

_Key = tuple[int, int]  # thread and address of a node


@dataclass(frozen=True, slots=True)
class _Run:
    """The counts of a unit in several contexts: arrays of shape (contexts,). Those of loops are in the unit's order."""

    blocks: Mapping[int, Counts]
    instructions: Mapping[int, Counts]  # by block
    entries: Counts
    loop_entries: Sequence[Counts]
    iterations: Sequence[Counts]


def _run(unit: Unit, counters: Counts, cut: Mapping[tuple[int, int], Counts]) -> _Run:
    """The counts that follow from ``counters``, of shape (counters of the unit, contexts). ``cut``: as in Counted."""
    places = counters[:len(unit.counting.places)].copy()
    for index, (_, stepping) in unit.stepped.items():
        places[index] //= abs(stepping.step)
    cut_blocks: dict[int, Counts] = {}
    for (block, _), times in cut.items():
        cut_blocks[block] = cut_blocks[block] + times if block in cut_blocks else times
    solved = unit.counting.solve(places, cut_blocks)
    blocks = {start: solved[start, None] for start in unit.graph.blocks}
    instructions = {start: len(block.instructions) * blocks[start] for start, block in unit.graph.blocks.items()}
    for (start, address), times in cut.items():
        rest = sum(i.address >= address for i in unit.graph.blocks[start].instructions)
        instructions[start] = instructions[start] + rest * times
    homes = {i.address: start for start, block in unit.graph.blocks.items() for i in block.instructions}
    for address, repeats in zip(unit.repeated, counters[len(unit.counting.places):], strict=True):
        instructions[homes[address]] = instructions[homes[address]] + repeats
    into = blocks[unit.graph.entry].copy()
    for (_, target), count in solved.items():
        if target == unit.graph.entry:
            into -= count
    entries, iterations = [], []
    for loop in unit.nesting.loops:
        runs = blocks.get(loop.header, numpy.zeros_like(into))
        back = sum((solved[edge] for edge in loop.back_edges if edge in solved), numpy.zeros_like(into))
        left = numpy.zeros_like(into)
        if all(source != loop.header for source, _ in loop.back_edges):
            left = sum((solved[edge] for edge in loop.exits if edge[0] == loop.header and edge in solved), left)
        entered = runs - back
        if any(edge not in solved for edge in loop.back_edges):  # nor is it known how often they were taken
            entered = numpy.minimum(entered, _at_most(unit, loop, blocks, solved, into))
        entries.append(entered)
        iterations.append(runs - left)
    return _Run(blocks, instructions, into, entries, iterations)


def _at_most(unit: Unit, loop: Loop, blocks: Mapping[int, Counts], solved: Mapping[Place, Counts],
             into: Counts) -> Counts:
    """An upper bound of a loop's entries: as if every jump that may lead into it from outside had done so."""
    total = into if loop.header == unit.graph.entry else numpy.zeros_like(into)
    for start, block in unit.graph.blocks.items():
        inside = [s for s in dict.fromkeys(block.successors) if s in loop.blocks and start not in loop.blocks]
        total = total + sum((solved[start, s] for s in inside if (start, s) in solved), numpy.zeros_like(into))
        if any((start, s) not in solved for s in inside):
            total = total + blocks[start]
    return total


@dataclass(frozen=True, slots=True)
class Written:
    """The rows written so far. ``contexts``: their ids, by thread and by the addresses of their nodes.
    ``instructions``: how many were executed in all."""

    contexts: Mapping[int, Mapping[int, int]]
    static: Static
    instructions: int

    def of(self, tid: int) -> Mapping[int, int]:
        return self.contexts.get(tid, {})


def write_counts(connection: sqlite3.Connection, counted: Sequence[Counted], static: Static) -> Written:
    """Write the rows of ``execution``, ``context`` and ``context_loop``."""
    counted = list(_as_functions(counted, static))
    of_unit: dict[int, list[Counted]] = {}
    for item in counted:
        of_unit.setdefault(item.unit.number, []).append(item)
    found: dict[_Key, _Sums] = {}
    connection.execute("BEGIN")
    for items in of_unit.values():
        unit = items[0].unit
        cut = {place: numpy.array([item.cut.get(place, 0) for item in items], numpy.int64)
               for place in {place for item in items for place in item.cut}}
        run = _run(unit, numpy.stack([item.counts for item in items], axis=1), cut)
        static.add_executions(unit, run)
        totals = sum(run.instructions.values(), numpy.zeros(len(items), numpy.int64))
        innermost = unit.nesting.innermost
        inside = [numpy.zeros(len(items), numpy.int64) for _ in unit.nesting.loops]
        for start, amount in run.instructions.items():
            if start in innermost:
                inside[innermost[start]] += amount
        for n, item in enumerate(items):
            found[item.tid, item.address] = _Sums(int(totals[n]), 0 if item.resumed else int(run.entries[n]), {
                index: (int(run.loop_entries[index][n]), int(run.iterations[index][n]), int(inside[index][n]))
                for index in range(len(inside)) if run.loop_entries[index][n] or run.iterations[index][n]})
    kept, homes = _fold(counted, found, static)
    numbers = _write_tree(connection, kept, static, found)
    contexts: dict[int, dict[int, int]] = {}
    for (tid, address), home in homes.items():
        contexts.setdefault(tid, {})[address] = numbers[home]
    connection.execute("COMMIT")
    return Written(contexts, static, sum(found[key].own for key in numbers))


@dataclass(slots=True)
class _Sums:
    """The counts of a node, without those of callees. ``loops``: by index, its entries, iterations, instructions."""

    own: int
    entries: int
    loops: dict[int, tuple[int, int, int]]

    def add(self, other: _Sums) -> None:
        """Adds the counts of another node of the same function."""
        self.own += other.own
        self.entries += other.entries
        for index, counts in other.loops.items():
            entered, iterations, inside = self.loops.get(index, (0, 0, 0))
            self.loops[index] = entered + counts[0], iterations + counts[1], inside + counts[2]

    def add_in_loop(self, index: int | None, instructions: int) -> None:
        """Adds instructions of a stub that was called from the loop ``index``."""
        self.own += instructions
        if index in self.loops:
            entered, iterations, inside = self.loops[index]
            self.loops[index] = entered, iterations, inside + instructions


def _fold(counted: Sequence[Counted], found: dict[_Key, _Sums], static: Static
          ) -> tuple[list[Counted], dict[_Key, _Key]]:
    """Adds up the nodes that are one context. Returns those that stay, in preorder, and by each node the one that it is
    part of.

    Stubs (``f@plt``) belong to the calls that go by them: they are no level of the tree. A unit that begins in the
    middle of its caller's function is a part of that. Callees of one call are one.
    """
    by_address = {(item.tid, item.address): item for item in counted}
    homes: dict[_Key, _Key] = {}
    stubs: dict[_Key, Counted] = {}
    known: dict[tuple[_Key, int, int | None, bool], _Key] = {}
    kept = []
    for item in _callers_first(counted, by_address):
        key, above = (item.tid, item.address), (item.tid, item.caller)
        if above in stubs:
            item = replace(item, site=stubs[above].site, loop=stubs[above].loop)
        home = homes.get(above)
        of = None if home is None else by_address[home].unit
        if home is not None and of is not None:
            item = replace(item, caller=home[1])
            if item.unit.linkage.belongs_to_call:
                homes[key], stubs[key] = home, item
                found[home].add_in_loop(item.loop, found[key].own)
                continue
            again = known.setdefault((home, item.unit.number, item.site, item.resumed), key)
            if item.resumed and static.is_one_function(item.unit, of):
                again = home
            if again != key:
                homes[key] = again
                found[again].add(found[key])
                continue
        homes[key] = key
        kept.append(item)
    return kept, homes


def _as_functions(counted: Sequence[Counted], static: Static) -> Iterator[Counted]:
    """Give units that begin in the middle of a function the loops of that function, and so its other units: where an
    exception is caught or a coroutine goes on, the program goes on inside these loops."""
    by_address = {(item.tid, item.address): item for item in counted}
    units = {item.unit.number: item.unit for item in counted}
    parts = {number for number, unit in units.items() if static.begins_inside(unit)}
    of = {static.function(units[number])[:2] for number in parts}
    whole = {number: replace(unit, nesting=static.nesting(unit)) for number, unit in units.items()
             if static.function(unit)[:2] in of}
    for item in counted:
        caller = by_address.get((item.tid, item.caller))
        if caller is not None and caller.unit.number in whole and item.site is not None:
            item = replace(item, loop=whole[caller.unit.number].loop_around(item.site))
        if item.unit.number in whole:
            item = replace(item, unit=whole[item.unit.number])
        if item.unit.number in parts:
            item = replace(item, resumed=caller is None or not _is_entered(item, caller, static))
        yield item


def _is_entered(item: Counted, caller: Counted, static: Static) -> bool:
    """Whether ``caller`` has called the part of a function that ``item`` is, or has jumped to it from another function:
    then it is a function to itself."""
    return any(s.address == item.site and (s.returns or not static.is_one_function(item.unit, caller.unit))
               for s in caller.unit.sites)


def _write_tree(connection: sqlite3.Connection, order: Sequence[Counted], static: Static, found: Mapping[_Key, _Sums]
                ) -> dict[_Key, int]:
    """Write the tree of the nodes ``order``, which are in preorder. Returns the ids of their contexts."""
    by_address = {(item.tid, item.address): item for item in order}
    number = {(item.tid, item.address): index for index, item in enumerate(order, 1)}
    last, inclusive = dict(number), {key: found[key].own for key in number}
    calls: dict[tuple[_Key, int], int] = {}  # instructions of callees, by node and index of the loop around the call
    for item in reversed(order):
        node, above = (item.tid, item.address), (item.tid, item.caller)
        if above in by_address:
            last[above] = max(last[above], last[node])
            inclusive[above] += inclusive[node]
            if item.loop is not None:
                calls[above, item.loop] = calls.get((above, item.loop), 0) + inclusive[node]

    def context(item: Counted) -> tuple[int | None, ...]:
        node, above = (item.tid, item.address), (item.tid, item.caller)
        caller = by_address.get(above)
        unit = None if caller is None else caller.unit
        loop = None if unit is None or item.loop is None else static.loop(unit, item.loop)
        return (number[node], last[node], item.tid, number.get(above), *static.function(item.unit),
                static.site(unit, item.site), loop, found[node].entries, found[node].own, inclusive[node])

    def context_loops(item: Counted) -> Iterator[tuple[int, ...]]:
        node = item.tid, item.address
        loops = found[node].loops
        totals = _with_callees(item, {index: inside for index, (*_, inside) in loops.items()}, calls)
        return ((number[node], loop, *row, totals[index]) for index, row in loops.items()
                if (loop := static.loop(item.unit, index)) is not None)

    connection.executemany(f"INSERT INTO context VALUES ({', '.join('?' * 12)})", map(context, order))
    connection.executemany("INSERT OR IGNORE INTO context_loop VALUES (?, ?, ?, ?, ?, ?)",
                           (row for item in order for row in context_loops(item)))
    return number


def _callers_first(counted: Sequence[Counted], by_address: Mapping[_Key, Counted]) -> list[Counted]:
    """The nodes in preorder: each behind its caller, and behind the subtrees of calls before it."""
    below: dict[_Key, list[Counted]] = {}
    for item in counted:
        above = item.tid, item.caller
        below.setdefault(above if above in by_address else (0, 0), []).append(item)
    order: list[Counted] = []
    pending = list(reversed(below.get((0, 0), ())))
    while pending:
        item = pending.pop()
        order.append(item)
        pending += reversed(below.get((item.tid, item.address), ()))
    return order


def _with_callees(item: Counted, instructions: Mapping[int, int],
                  calls: Mapping[tuple[_Key, int], int]) -> dict[int, int]:
    """Instructions by the loops of a node, with those of inner loops and callees. ``instructions``: without them."""
    totals = {index: count + calls.get(((item.tid, item.address), index), 0) for index, count in instructions.items()}
    for index in sorted(totals, reverse=True):  # inner loops come later
        parent = item.unit.nesting.loops[index].parent
        if parent in totals:
            totals[parent] += totals[index]
    return totals


class _Ranges:
    """The address ranges of the functions of a file."""

    def __init__(self, connection: sqlite3.Connection, image: int) -> None:
        found = connection.execute("SELECT start, end, id FROM function WHERE image = ? ORDER BY start",
                                   (image,)).fetchall()
        self._starts, self._numbers = [start for start, _, _ in found], [number for _, _, number in found]
        self._highest = list(itertools.accumulate((end for _, end, _ in found), max))  # end of it and those before

    def begins_at(self, address: int) -> bool:
        index = bisect.bisect_left(self._starts, address)
        return index < len(self._starts) and self._starts[index] == address

    def function_at(self, address: int) -> int | None:
        """The first function around an address."""
        index = bisect.bisect_right(self._highest, address)
        return self._numbers[index] if index < len(self._starts) and self._starts[index] <= address else None


class Static:
    """Finds the rows of the static tables (image, function, loop, instruction) for units and live addresses."""

    def __init__(self, connection: sqlite3.Connection, numbers: Mapping[str, int], texts: Mapping[int, Text]) -> None:
        self._connection, self._numbers, self._texts = connection, numbers, texts
        self._functions: dict[int, tuple[int | None, int | None, int]] = {}
        self._loops: dict[tuple[int, int], int] = {
            (function, header): loop
            for loop, function, header in connection.execute("SELECT id, function, header FROM loop")}
        self._ranges = {image: _Ranges(connection, image) for image in numbers.values()}

    def site(self, caller: Unit | None, address: int | None) -> int | None:
        """Link-time address of an instruction of ``caller``."""
        return None if caller is None or address is None else address - self._texts[caller.number].bias

    def function(self, unit: Unit) -> tuple[int | None, int | None, int]:
        """The function and the file of a unit, None where they have no rows, and its link-time entry."""
        if unit.number not in self._functions:
            text = self._texts[unit.number]
            entry, image = unit.graph.entry - text.bias, self._numbers.get(text.mapping.path)
            function = None if image is None else self._ranges[image].function_at(entry)
            self._functions[unit.number] = function, image, entry
        return self._functions[unit.number]

    def loop(self, unit: Unit, index: int) -> int | None:
        function, _, entry = self.function(unit)
        loop: Loop = unit.nesting.loops[index]
        header = loop.header - (unit.graph.entry - entry)
        return None if function is None else self._loops.get((function, header))

    def begins_inside(self, unit: Unit) -> bool:
        """Whether a unit begins in the middle of a function."""
        function, image, entry = self.function(unit)
        return function is not None and image is not None and not self._ranges[image].begins_at(entry)

    def is_one_function(self, unit: Unit, other: Unit) -> bool:
        """Whether two units are of one function."""
        function, image, _ = self.function(unit)
        return function is not None and (function, image) == self.function(other)[:2]

    def nesting(self, unit: Unit) -> Nesting:
        """The loops of the function in which ``unit`` begins, with the blocks that the unit has."""
        function, _, entry = self.function(unit)
        bias, graph = unit.graph.entry - entry, unit.graph
        blocks = list(graph.blocks)
        inside: dict[int, set[int]] = {}
        ranges = self._connection.execute("""SELECT b.start, b.end, a.id FROM block b JOIN loop a
            ON a.function = b.function AND b.loop BETWEEN a.id AND a.last WHERE b.function = ?""", (function,))
        for start, end, loop in ranges:
            first, behind = (bisect.bisect_left(blocks, address + bias) for address in (start, end))
            inside.setdefault(loop, set()).update(blocks[first:behind])
        loops: list[Loop] = []
        indices: dict[int, int] = {}
        for loop, parent, header, depth in self._connection.execute(
                "SELECT id, parent, header, depth FROM loop WHERE function = ? ORDER BY id", (function,)):
            body = frozenset(inside.get(loop, ()))
            edges = [(b, s) for b in body for s in graph.successors(b)]
            indices[loop] = len(loops)
            loops.append(Loop(header + bias, body, tuple(e for e in edges if e[1] == header + bias),
                              tuple(e for e in edges if e[1] not in body), indices.get(parent), (), depth))
        return Nesting(tuple(loops), frozenset())

    def add_executions(self, unit: Unit, run: _Run) -> None:
        _, image, entry = self.function(unit)
        bias = unit.graph.entry - entry
        if image is not None:
            self._connection.executemany("INSERT INTO execution VALUES (?, ?, ?, ?, ?)", (
                (image, start - bias, block.end - bias, int(count), int(run.instructions[start].sum()))
                for start, block in unit.graph.blocks.items() if (count := run.blocks[start].sum())))
