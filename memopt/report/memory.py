"""Memory behaviour of loops, as text: whether dependences allow parallel iterations, working sets beside cache sizes.

In: a profile of ``memopt profile --memory`` or ``--dependences``. Out: one line for each loop with a share worth
showing.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator

from memopt.store.queries import QUERIES

# A bar begins at 2**-4 KiB, and each of its 26 characters doubles the size.
_KIB_AT_0, _WIDTH = -4, 26


def lines(connection: sqlite3.Connection, least: float) -> Iterator[str]:
    """The lines; none if the profile holds no dependences. Loops with a share below ``least`` percent are left out."""
    caches = connection.execute("SELECT level, bytes FROM cache ORDER BY level").fetchall()
    answer = connection.execute(QUERIES["parallel-candidates"].sql)
    columns = [column[0] for column in answer.description]
    rows = [dict(zip(columns, row, strict=True)) for row in answer]
    shown = [row for row in rows if row["percent"] >= least]
    if not shown:
        return
    touched = any(row["kib"] is not None for row in shown)
    yield ""
    yield "loops, and the dependences that they carry through memory" + (
        "; in front, the working set of one entry (a digit marks the size of that cache level)" if touched else "")
    for row in shown:
        kib = row["kib"] or 0.0
        sizes = f"{bar(kib, caches)}  {kib:10,.1f} KiB  " if touched else ""
        yield f"{sizes}{row['percent']:5.1f} %  {row['function']} {row['loop']}: {row['through_memory']}"


def bar(kib: float, caches: list[tuple[int, int]]) -> str:
    """A logarithmic bar for a size of ``kib`` KiB. The level of each cache (level, bytes) stands at the cache's
    size."""
    text = ["#" if place < _place(kib) else " " for place in range(_WIDTH)]
    for level, size in caches:
        text[min(_WIDTH - 1, _place(size / 1024))] = str(level)
    return "".join(text)


def _place(kib: float) -> int:
    return max(0, round(math.log2(kib)) - _KIB_AT_0) if kib > 0 else 0
