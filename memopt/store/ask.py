"""``memopt query``: runs one query on a profile, and formats the result as a table, CSV or JSON.

In: the path of a profile; SQL, or the name of a query in ``queries``. Out: lines of text. Profiles are opened for
reading only, so no query can change one.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sqlite3
from collections.abc import Iterable, Sequence
from itertools import chain

from memopt.store.queries import QUERIES
from memopt.store.schema import StoreError, open_existing

_WIDEST = 60  # a longer text is cut in a table

Row = Sequence[object]


def answer(path: str, question: str, form: str) -> Iterable[str]:
    """The lines of the answer. ``question``: SQL, or the name of one of ``QUERIES``; ``form``: "table", "csv" or
    "json".

    A table without rows ends in a line that names the empty tables behind it, and the queries that this profile can
    answer. Raises ``StoreError`` if the file is no profile or the query fails.
    """
    named = QUERIES.get(question)
    if named is None and " " not in question.strip():
        raise StoreError(f"{question}: no query has this name; memopt query --list shows all names")
    connection = open_existing(path)
    sql = question if named is None else named.sql
    try:
        cursor = connection.execute(sql)
        columns = [name for name, *_ in cursor.description or ()]
        rows = cursor.fetchall()
        empty = [] if rows else _empty_tables(connection, sql)
        others = [name for name, query in QUERIES.items() if empty and not _empty_tables(connection, query.sql)]
    except sqlite3.Error as error:
        raise StoreError(f"the query failed ({error}); memopt query --schema shows tables and columns") from error
    finally:
        connection.close()
    if form == "json":
        return (json.dumps([dict(zip(columns, map(_plain, row), strict=True)) for row in rows], indent=1),)
    if form == "csv":
        return _csv(columns, rows)
    instead = f"this profile can answer {', '.join(others)}; " if others else ""
    why = (f"no rows: this profile has nothing in {', '.join(empty)}; {instead}"
           "memopt query --schema tells which option fills each table")
    return chain(_table(columns, rows), [why] if empty else [])


def _empty_tables(connection: sqlite3.Connection, sql: str) -> list[str]:
    """The tables that ``sql`` names and that hold no rows."""
    named = {name.lower() for name in re.findall(r"\b(?:from|join)\s+(\w+)", sql, re.IGNORECASE)}
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
    return [name for (name,) in tables
            if name in named and connection.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchone() is None]


def names() -> Iterable[str]:
    """One line for each of ``QUERIES``: its name and its title."""
    width = max(map(len, QUERIES))
    return (f"{name:<{width}}  {query.title}" for name, query in QUERIES.items())


def _csv(columns: Sequence[str], rows: Iterable[Row]) -> Iterable[str]:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_plain(value) for value in row] for row in rows)
    return text.getvalue().splitlines()


def _table(columns: Sequence[str], rows: Sequence[Row]) -> Iterable[str]:
    """A table: columns of numbers aligned to the right, others to the left; long texts are cut."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    right = [bool(rows) and all(isinstance(row[n], int | float) for row in rows) for n in range(len(columns))]
    for line in (columns, *cells):
        yield "  ".join(cell.rjust(w) if r else cell.ljust(w)
                        for cell, w, r in zip(line, widths, right, strict=True)).rstrip()


def _cell(value: object) -> str:
    text = "" if value is None else str(_plain(value))
    return text if len(text) <= _WIDEST else text[:_WIDEST - 3] + "..."


def _plain(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else value
