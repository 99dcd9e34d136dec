"""``memopt merge``: one profile of several, such as those of the ranks of one run, or of several runs of one program.

In: paths of profiles. Out: a new profile. Files, functions, loops and blocks that several sources hold are written
once. Counts are not added up: each source keeps its own threads and calling contexts, and queries sum over them.

Ids of rows are renumbered. So are all columns that hold ids: foreign keys, the columns ``last``, and the ids in texts
of patterns (``[ID4]``).
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing

from memopt.store.schema import create, open_existing

_ID = re.compile(r"\[ID(\d+)\]")
# Columns that hold ids of rows but are not declared as foreign keys: by (table, column) the table of the ids.
_INSIDE = {("loop", "last"): "loop", ("context", "last"): "context"}
# By table: the columns that tell whether a row is in the target already, together with everything that belongs to it.
_SAME: dict[str, tuple[str, ...]] = {"image": ("path",), "function": ("image", "start", "end"),
                                     "loop": ("function", "header"), "block": ("function", "start")}
# Tables whose rows belong to a block, by the column that holds the block's id.
_OF_BLOCKS = {"edge": "source", "instruction": "block", "call": "block"}
_ONCE = frozenset({"cache", "carried"})  # tables in which equal rows are written once

Row = tuple[object, ...]


def merge(target: str, sources: Sequence[str]) -> None:
    """Writes a profile to ``target`` that holds everything in ``sources``. Raises ``StoreError``."""
    opened = [open_existing(source) for source in sources]
    with closing(create(target)) as connection:
        tables = [name for (name,) in connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY rowid")]
        for source in opened:
            connection.execute("BEGIN")
            _Merging(connection, source).all(tables)
            connection.execute("COMMIT")
            source.close()


class _Merging:
    """Copies one source into the target. ``_numbers``: by table, the id in the target of each id in the source."""

    def __init__(self, connection: sqlite3.Connection, source: sqlite3.Connection) -> None:
        self._connection, self._source = connection, source
        self._numbers: dict[str, dict[object, int]] = {}
        self._known_functions: set[object] = set()  # ids in the target of functions that were there before
        self._known_blocks: set[object] = set()

    def all(self, tables: Sequence[str]) -> None:
        """Copies ``tables``, given in any order. Tables to which others refer are copied first."""
        first = [*_SAME, "context", "pattern", "access", "nest", "value"]
        for table in (*first, *(t for t in tables if t not in first)):
            self._copy(table)

    def _copy(self, table: str) -> None:
        columns = [name for _, name, *_ in self._source.execute(f"PRAGMA table_info({table})")]
        keys = self._source.execute(f"PRAGMA foreign_key_list({table})")
        refers = {column: other for _, _, other, column, *_ in keys}
        refers |= {column: other for (name, column), other in _INSIDE.items() if name == table}
        rows = self._source.execute(f"SELECT {', '.join(columns)} FROM {table} ORDER BY 1").fetchall()
        if "id" in columns:
            self._number(table, columns, refers, rows)
        fresh = self._fresh(table, columns)
        change = [self._changing(refers.get(column, table if column == "id" else "")) for column in columns]
        made = [tuple(f(value) for f, value in zip(change, row, strict=True)) for row in rows]
        if table == "pattern":
            text = columns.index("text")
            made = [(*row[:text], self._renamed(str(row[text])), *row[text + 1:]) for row in made]
        kept = [row for row in made if fresh(row)]
        if table in _ONCE:
            there = set(self._connection.execute(f"SELECT * FROM {table}"))
            kept = [row for row in kept if row not in there]
        self._connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", kept)

    def _changing(self, table: str) -> Callable[[object], object]:
        numbers = self._numbers.get(table)
        return (lambda value: value) if numbers is None else lambda value: None if value is None else numbers[value]

    def _renamed(self, text: str) -> str:
        return _ID.sub(lambda found: f"[ID{self._numbers['pattern'][int(found[1])]}]", text)

    def _number(self, table: str, columns: Sequence[str], refers: dict[str, str], rows: Sequence[Row]) -> None:
        """Chooses the ids of ``rows`` in the target: the id of the same row there, or the next free id."""
        known: dict[Row, int] = {}
        keys = _SAME.get(table, ())
        if keys:
            known = {row[1:]: row[0] for row in self._connection.execute(f"SELECT id, {', '.join(keys)} FROM {table}")}
        (following,) = self._connection.execute(f"SELECT COALESCE(max(id) + 1, 1) FROM {table}").fetchone()
        numbers = self._numbers[table] = {}
        at = [columns.index(key) for key in keys]
        number = columns.index("id")
        for row in rows:
            key = tuple(self._changing(refers.get(columns[place], ""))(row[place]) for place in at)
            there = known.get(key) if keys else None
            if there is None:
                there, following = following, following + 1
            elif table == "function":
                self._known_functions.add(there)
            elif table == "block":
                self._known_blocks.add(there)
            numbers[row[number]] = there

    def _fresh(self, table: str, columns: Sequence[str]) -> Callable[[Row], bool]:
        """A predicate on rows with their new ids: is the row missing in the target?"""
        if table == "image":
            there = {number for (number,) in self._connection.execute("SELECT id FROM image")}
            return lambda row: row[0] not in there
        if table == "function":
            return lambda row: row[0] not in self._known_functions
        if table in ("loop", "block"):
            function = columns.index("function")
            return lambda row: row[function] not in self._known_functions
        if table in _OF_BLOCKS:
            block = columns.index(_OF_BLOCKS[table])
            return lambda row: row[block] not in self._known_blocks
        return lambda _: True
