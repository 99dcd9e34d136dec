"""Access patterns of the most frequent accesses, as text, with the definitions of the patterns that they refer to.

In: a profile of ``memopt profile --memory``. Out: lines such as ``R8 at 0x11c4 in dgemm: 1,000 accesses to block of
main``, each with its patterns below it in the notation of ``memopt.traces.notation``.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator

from memopt.store.queries import LEADS_TO

_ACCESSES, _PARTS, _DEFINITIONS = 10, 8, 12  # shown at most: accesses, parts of each, definitions below each
_ID = re.compile(r"\[ID(\d+)\]")


def lines(connection: sqlite3.Connection, least: float) -> Iterator[str]:
    """The lines; none if the profile holds no accesses. An access with less than ``least`` percent of all accesses is
    left out."""
    (total,) = connection.execute("SELECT COALESCE(sum(count), 0) FROM access").fetchone()
    rows = connection.execute(f"""
        SELECT a.id, a.kind || a.size, a.address, f.name, a.count, a.parts, {LEADS_TO}
        FROM access a
        JOIN context c ON c.id = a.context LEFT JOIN function f ON f.id = c.function
        LEFT JOIN object o ON o.access = a.id
        WHERE 100.0 * a.count >= ? ORDER BY a.count DESC, a.id LIMIT ?""", (least * total, _ACCESSES)).fetchall()
    if not rows or not total:
        return
    yield ""
    yield ("addresses of the most frequent accesses (8x67: 67 accesses of 8 bytes; (+16+P)*34: 34 times P, each 16 "
           "bytes behind the end of the one before)")
    for number, access, address, function, count, parts, leads in rows:
        yield (f"{access} at {address:#x} in {function or 'an unknown function'}: {count:,} accesses"
               + (f" to {leads}" if leads else ""))
        if parts is None:
            yield "    no pattern was found"
        else:
            yield from _parts(connection, number, parts)


def _parts(connection: sqlite3.Connection, access: int, parts: int) -> Iterator[str]:
    shown = connection.execute("""
        SELECT p.address, t.span, t.text, t.affine FROM part p JOIN pattern t ON t.id = p.pattern
        WHERE p.access = ? ORDER BY p.position LIMIT ?""", (access, _PARTS)).fetchall()
    behind = None
    for address, span, text, affine in shown:
        at = f"{address:#x} " if behind is None else f"{address - behind:+}+"
        yield f"    {at}{text}" + (f"   {affine}" if affine and parts == 1 else "")
        behind = address + span
    if parts > _PARTS:
        yield f"    and {parts - _PARTS:,} more"
    waiting = [name for _, _, text, _ in shown for name in _ID.findall(text)]
    defined: dict[str, str] = {}
    while waiting and len(defined) < _DEFINITIONS:
        name = waiting.pop(0)
        if name not in defined:
            (defined[name],) = connection.execute("SELECT text FROM pattern WHERE id = ?", (int(name),)).fetchone()
            waiting += _ID.findall(defined[name])
    for name, text in defined.items():
        yield f"      ID{name}: {text}"
