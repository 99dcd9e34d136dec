"""Several profiles as one: those of the ranks of one run, or of several runs of one program.

Files and functions that are in more than one become one; what was counted stays apart by threads and contexts, so that
queries add it up.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing

from memopt.store.schema import create, open_existing

_ID = re.compile(r"\[ID(\d+)\]")
_INSIDE = {("loop", "last"): "loop", ("context", "last"): "context"}
"""Columns with numbers of rows beside those that refer to them."""
_SAME: dict[str, tuple[str, ...]] = {"image": ("path",), "function": ("image", "start", "end"),
                                     "loop": ("function", "header"), "block": ("function", "start")}
"""What rows are told by that may be there already, with all that belongs to them."""
_OF_BLOCKS = {"edge": "source", "instruction": "block", "call": "block"}
_ONCE = frozenset({"cache"})

Row = tuple[object, ...]


def merge(target: str, sources: Sequence[str]) -> None:
    """A profile at ``target`` of all that ``sources`` hold. Raises ``StoreError``."""
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
    """Of one source. ``_numbers``: by table, of its rows in the target."""

    def __init__(self, connection: sqlite3.Connection, source: sqlite3.Connection) -> None:
        self._connection, self._source = connection, source
        self._numbers: dict[str, dict[object, int]] = {}
        self._known_functions: set[object] = set()  # by their numbers in the target
        self._known_blocks: set[object] = set()

    def all(self, tables: Sequence[str]) -> None:
        """``tables`` in any order; what others refer to comes first."""
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
        """What the rows are called in the target: those that are the same as theirs there, the others numbered on."""
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
        """Whether a row, as it is to be in the target, is not there yet."""
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
