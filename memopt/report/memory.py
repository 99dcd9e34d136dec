"""What loops do in memory, as lines for a terminal: dependences between iterations, working sets beside the caches."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator

from memopt.store.queries import QUERIES

_KIB_AT_0, _WIDTH = -4, 26  # a bar begins at 1 / 16 KiB and doubles with each character


def lines(connection: sqlite3.Connection, least: float) -> Iterator[str]:
    """Nothing where memory was not watched. ``least``: percent below which a loop is left out."""
    caches = connection.execute("SELECT level, bytes FROM cache ORDER BY level").fetchall()
    answer = connection.execute(QUERIES["parallel-candidates"].sql)
    columns = [column[0] for column in answer.description]
    rows = [dict(zip(columns, row, strict=True)) for row in answer]
    shown = [row for row in rows if row["percent"] >= least]
    if not shown:
        return
    touched = any(row["kib"] is not None for row in shown)
    names = ", ".join(f"{level} the level {level} cache" for level, _ in caches)
    yield ""
    yield "loops through memory" + (f", and what an entry touches ({names})" if touched else "")
    for row in shown:
        kib = row["kib"] or 0.0
        sizes = f"{bar(kib, caches)}  {kib:10,.1f} KiB  " if touched else ""
        yield f"{sizes}{row['percent']:5.1f} %  {row['function']} {row['loop']}: {row['through_memory']}"


def bar(kib: float, caches: list[tuple[int, int]]) -> str:
    """As long as ``kib`` is large, with the level of each cache (level, bytes) where that is full."""
    text = ["#" if place < _place(kib) else " " for place in range(_WIDTH)]
    for level, size in caches:
        text[min(_WIDTH - 1, _place(size / 1024))] = str(level)
    return "".join(text)


def _place(kib: float) -> int:
    return max(0, round(math.log2(kib)) - _KIB_AT_0) if kib > 0 else 0
