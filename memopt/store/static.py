"""Writes the static structure of functions into a profile: functions, loops, blocks, edges, instructions and calls.

In: an open profile, ``FunctionStructure`` of each function of a file. Out: rows. The ids of loops are preorder numbers
of the loop nesting, so that the loops inside a loop are those with ids in [id, last].
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable

from memopt.cfg.functions import FunctionStructure
from memopt.cfg.loop_control import loop_control
from memopt.elf.lines import SourceLine, SourceLines
from memopt.elf.symbols import Function
from memopt.ir.graph import Kind


def add_image(connection: sqlite3.Connection, path: str) -> int:
    """The id of the file at ``path``. Inserts a row for a new file."""
    connection.execute("INSERT OR IGNORE INTO image (path) VALUES (?)", (path,))
    (number,) = connection.execute("SELECT id FROM image WHERE path = ?", (path,)).fetchone()
    return int(number)


def add_functions(connection: sqlite3.Connection, image: int, found: Iterable[FunctionStructure],
                  lines: SourceLines, ran: Callable[[Function], bool]) -> None:
    """Writes all functions of ``found``, then connects calls with the functions of this file that they call. One
    transaction.

    ``lines``: of the file. Loops get their lines; of functions that ``ran``, instructions get theirs, too."""
    connection.execute("BEGIN")
    for structure in found:
        _add_function(connection, image, structure, lines, ran(structure.function))
    connection.execute(
        "UPDATE call SET callee = (SELECT f.id FROM function f WHERE f.image = ?1 AND f.start = call.target) "
        "WHERE callee IS NULL AND block IN (SELECT b.id FROM block b JOIN function f ON f.id = b.function "
        "WHERE f.image = ?1)", (image,))
    connection.execute("COMMIT")


def _add_function(connection: sqlite3.Connection, image: int, structure: FunctionStructure, lines: SourceLines,
                  ran: bool) -> None:
    function, graph, nesting = structure.function, structure.graph, structure.nesting
    number = connection.execute("INSERT INTO function (image, name, start, end) VALUES (?, ?, ?, ?)",
                                (image, function.shown, function.start, function.end)).lastrowid
    first_loop = _next_id(connection, "loop")
    last = list(range(len(nesting.loops)))
    for index in reversed(range(len(last))):  # inner loops first: a loop has a higher index than the loop around it
        parent = nesting.loops[index].parent
        if parent is not None:
            last[parent] = max(last[parent], last[index])
    connection.executemany(
        "INSERT INTO loop VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        ((first_loop + index, number, None if loop.parent is None else first_loop + loop.parent, loop.header,
          loop.depth, first_loop + last[index], loop.header in nesting.irreducible,
          *_columns(lines.of_loop(loop_control(graph, nesting.loops, loop))))
         for index, loop in enumerate(nesting.loops)))
    innermost = nesting.innermost
    blocks = {start: index for index, start in enumerate(graph.blocks, _next_id(connection, "block"))}
    connection.executemany("INSERT INTO block VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (
        (blocks[b.start], number, first_loop + innermost[b.start] if b.start in innermost else None, b.start, b.end,
         *structure.dominance[b.start], b.kind.value) for b in graph.blocks.values()))
    back = {edge for loop in nesting.loops for edge in loop.back_edges}
    connection.executemany("INSERT INTO edge VALUES (?, ?, ?, ?)", (
        (blocks[b.start], blocks.get(target), target, (b.start, target) in back)
        for b in graph.blocks.values() for target in b.successors))
    connection.executemany("INSERT INTO instruction VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (
        (i.address, blocks[b.start], i.bytes, i.mnemonic, i.operands_text,
         *_columns(lines.at(i.address) if ran else None))
        for b in graph.blocks.values() for i in b.instructions))
    connection.executemany("INSERT INTO call (block, address, target, symbol) VALUES (?, ?, ?, ?)", (
        (blocks[b.start], i.address, i.target, structure.symbols.get(i.address))
        for b in graph.blocks.values() for i in b.instructions if i.kind is Kind.CALL))


def _columns(source: SourceLine | None) -> tuple[str | None, int | None, str | None]:
    """The columns file, line and inlined."""
    if source is None:
        return None, None, None
    return source.file, source.line, str(source.inlined) if source.inlined else None


def _next_id(connection: sqlite3.Connection, table: str) -> int:
    (highest,) = connection.execute(f"SELECT COALESCE(MAX(id), 0) FROM {table}").fetchone()
    return int(highest) + 1
