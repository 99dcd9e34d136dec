"""Data of the page for single functions, loops and accesses: code with source, working-set curves, addresses.

In: an open profile. Out: dictionaries that JSON can hold. Only the functions, loops and accesses with the largest
shares are shown, and of each a bounded part, so that the page stays small.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from memopt.elf.lines import Place, source_text
from memopt.store.queries import LEADS_TO
from memopt.traces.notation import expanded

# Code is shown of at most 24 functions, each with at least 1 % of the weight, and of at most 2,500 instructions of
# each.
_FUNCTIONS, _LEAST, _ROWS = 24, 0.01, 2500
_LOOPS, _ACCESSES = 12, 12  # at most so many curves, and clouds of addresses
_SEEN = 1 << 13  # the first addresses of an access, which are shown

Details = dict[str, Any]


def details(connection: sqlite3.Connection) -> Details:
    """The data of the page, all of which JSON can hold.

    ``code``: functions by their id (``_code``). ``sets``: working-set curves (``_sets``). ``accesses``: addresses of
    accesses (``_accesses``). ``caches``: pairs of name and bytes.
    """
    return {"code": dict(_code(connection)), "sets": list(_sets(connection)), "accesses": list(_accesses(connection)),
            "caches": connection.execute("SELECT name, bytes FROM cache ORDER BY level").fetchall()}


def _code(connection: sqlite3.Connection) -> Iterator[tuple[str, object]]:
    """Pairs of a function's id and its code. A row of the code is (source line or None, address, text, depth of its
    loop, weight). The weight of an instruction is the seconds of its samples; without samples, its execution count."""
    chosen = connection.execute(f"""
        WITH own AS (SELECT function, sum(instructions) AS weight FROM context GROUP BY function UNION ALL
                     SELECT b.function, sum(s.seconds) FROM sample s JOIN block b ON b.id = s.block GROUP BY b.function)
        SELECT f.id, f.name, f.start, f.end, m.id
        FROM function f JOIN image m ON m.id = f.image JOIN own w ON w.function = f.id
        WHERE w.weight >= {_LEAST} * (SELECT sum(weight) FROM own)
        ORDER BY w.weight DESC LIMIT {_FUNCTIONS}""").fetchall()
    for number, name, start, end, image in chosen:
        weights = dict(connection.execute(
            "SELECT address, sum(seconds) FROM sample WHERE image = ? AND address BETWEEN ? AND ? GROUP BY address",
            (image, start, end - 1)).fetchall())
        pieces = connection.execute("SELECT start, end, sum(count) FROM execution WHERE image = ? AND start >= ? AND "
                                    "start < ? GROUP BY start, end ORDER BY start", (image, start, end)).fetchall()
        lines = _Lines()
        rows = []
        for address, mnemonic, operands, depth, *place in connection.execute(f"""
                SELECT i.address, i.mnemonic, i.operands, COALESCE(l.depth, 0), i.file, i.line, i.inlined FROM block b
                JOIN instruction i ON i.block = b.id LEFT JOIN loop l ON l.id = b.loop
                WHERE b.function = ? ORDER BY i.address LIMIT {_ROWS}""", (number,)):
            weight = weights.get(address, 0) if weights else sum(n for a, b, n in pieces if a <= address < b)
            rows.append((lines.before(*place), address, f"{mnemonic} {operands}", depth, weight))
        yield str(number), {"name": name, "rows": rows, "unit": "s" if weights else "times"}


class _Lines:
    """Source lines of a function: a line is shown in front of its first instruction."""

    def __init__(self) -> None:
        self._last: tuple[str, int, str | None] | None = None

    def before(self, file: str | None, line: int | None, inlined: str | None) -> str | None:
        """The source line to show in front of an instruction at that place; None if the instruction before has the
        same one, or it is not known."""
        if file is None or line is None or (file, line, inlined) == self._last:
            return None
        self._last = file, line, inlined
        text = source_text(file)
        where = f" (inlined from {inlined})" if inlined else ""
        return f"{Place(file, line)}{where}  {text[line - 1] if line <= len(text) else ''}".rstrip()


def _sets(connection: sqlite3.Connection) -> Iterator[Details]:
    """Working-set curves of the heaviest loops, each in its heaviest calling context. A point is (iterations, bytes of
    cache lines, bytes of pages)."""
    rows = connection.execute("""
        SELECT x.inclusive, w.context, w.loop, f.name, l.header, w.iterations, w.lines, w.pages FROM working_set w
        JOIN context_loop x ON x.context = w.context AND x.loop = w.loop
        JOIN loop l ON l.id = w.loop JOIN function f ON f.id = l.function
        WHERE w.lines > 0 AND w.iterations > 0 ORDER BY x.inclusive DESC, w.context, w.loop, w.iterations""")
    shown: set[int] = set()
    for (_, _, loop), found in groupby(rows, key=lambda row: row[:3]):
        points = list(found)
        if loop not in shown and len(points) > 1:
            shown.add(loop)
            yield {"name": f"{points[0][3]} {points[0][4]:#x}", "points": [row[5:] for row in points]}
        if len(shown) == _LOOPS:
            return


def _accesses(connection: sqlite3.Connection) -> Iterator[Details]:
    """The most frequent accesses that have a pattern, each with its first addresses, in bytes above the lowest one."""
    for number, kind, address, function, count, leads in connection.execute(f"""
            SELECT a.id, a.kind || a.size, a.address, f.name, a.count, {LEADS_TO}
            FROM access a JOIN context c ON c.id = a.context LEFT JOIN function f ON f.id = c.function
            LEFT JOIN object o ON o.access = a.id WHERE a.parts IS NOT NULL AND a.count > 1
            ORDER BY a.count DESC, a.id LIMIT {_ACCESSES}""").fetchall():
        seen: list[int] = []
        text = ""
        for start, written in connection.execute("""
                SELECT p.address, t.text FROM part p JOIN pattern t ON t.id = p.pattern WHERE p.access = ?
                ORDER BY p.position""", (number,)):
            text = text or written
            seen += expanded(written, _Definitions(connection), start, _SEEN - len(seen)).tolist()
            if len(seen) >= _SEEN:
                break
        lowest = min(seen)
        to = f" to {leads}" if leads else ""
        yield {"name": f"{kind} at {address:#x} in {function or 'an unknown function'}{to}", "count": count,
               "text": text, "heights": [address - lowest for address in seen]}


class _Definitions(Mapping[int, str]):
    """The texts of a profile's patterns by their ids, read when they are needed."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __getitem__(self, number: int) -> str:
        found = self._connection.execute("SELECT text FROM pattern WHERE id = ?", (number,)).fetchone()
        if found is None:
            raise KeyError(number)
        return str(found[0])

    def __iter__(self) -> Iterator[int]:
        return (number for (number,) in self._connection.execute("SELECT id FROM pattern"))

    def __len__(self) -> int:
        return int(self._connection.execute("SELECT count(*) FROM pattern").fetchone()[0])
