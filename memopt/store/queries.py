"""Questions that have a name: what engineers ask a profile first.

Each is one SELECT over the tables of ``memopt.store.schema``; its columns are what its title promises.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_ALL_TIME = "(SELECT sum(seconds) FROM sample)"
_OF_LOOPS = """
WITH own AS (SELECT b.loop AS loop, sum(s.seconds) AS seconds FROM sample s JOIN block b ON b.id = s.block
             WHERE b.loop IS NOT NULL GROUP BY b.loop)
"""
_PLACE = "f.name AS function, printf('%#x', {0}) AS address"
_OF_VECTORS = "('movups', 'movupd', 'movdqu', 'lddqu', 'vmovups', 'vmovupd', 'vmovdqu', 'vlddqu')"


@dataclass(frozen=True, slots=True)
class Query:
    title: str
    sql: str


QUERIES: Mapping[str, Query] = {
    "hot-functions": Query("functions by the time spent in themselves", f"""
SELECT f.name AS function, round(100 * sum(s.seconds) / {_ALL_TIME}, 1) AS percent,
       round(sum(s.seconds), 3) AS seconds, m.path AS file
FROM sample s JOIN block b ON b.id = s.block JOIN function f ON f.id = b.function JOIN image m ON m.id = f.image
GROUP BY f.id ORDER BY sum(s.seconds) DESC"""),
    "hot-loops": Query("loops by the time spent in them, loops inside included", f"""{_OF_LOOPS}
SELECT {_PLACE.format('l.header')}, l.depth, round(100 * sum(o.seconds) / {_ALL_TIME}, 1) AS percent,
       round(100 * sum(o.seconds * (o.loop = l.id)) / {_ALL_TIME}, 1) AS own_percent, m.path AS file
FROM loop l JOIN own o ON o.loop BETWEEN l.id AND l.last JOIN function f ON f.id = l.function
     JOIN image m ON m.id = f.image
GROUP BY l.id ORDER BY sum(o.seconds) DESC, l.id"""),
    "hot-instructions": Query("instructions by the time at which they were met", f"""
SELECT {_PLACE.format('s.address')}, i.mnemonic, i.operands, round(100 * sum(s.seconds) / {_ALL_TIME}, 1) AS percent
FROM sample s JOIN instruction i ON i.block = s.block AND i.address = s.address JOIN block b ON b.id = s.block
     JOIN function f ON f.id = b.function
GROUP BY s.image, s.address ORDER BY sum(s.seconds) DESC"""),
    "block-sizes": Query("how many blocks have how many instructions", """
SELECT instructions, count(*) AS blocks FROM (SELECT count(*) AS instructions FROM instruction GROUP BY block)
GROUP BY instructions ORDER BY instructions"""),
    "instruction-mix": Query("how often each instruction stands in the code, and its part of the time", f"""
SELECT i.mnemonic, count(*) AS instructions, round(100 * COALESCE(sum(t.seconds), 0) / {_ALL_TIME}, 1) AS percent
FROM instruction i LEFT JOIN (SELECT block, address, sum(seconds) AS seconds FROM sample GROUP BY block, address) t
     ON t.block = i.block AND t.address = i.address
GROUP BY i.mnemonic ORDER BY COALESCE(sum(t.seconds), 0) DESC, count(*) DESC"""),
    "unaligned-vectors": Query("vectors in loops that are moved as if they were not aligned", f"""{_OF_LOOPS}
SELECT {_PLACE.format('i.address')}, i.mnemonic, i.operands,
       round(100 * COALESCE(o.seconds, 0) / {_ALL_TIME}, 1) AS percent_of_loop
FROM instruction i JOIN block b ON b.id = i.block JOIN function f ON f.id = b.function
     LEFT JOIN own o ON o.loop = b.loop
WHERE b.loop IS NOT NULL AND i.mnemonic IN {_OF_VECTORS} AND i.operands LIKE '%[%'
ORDER BY COALESCE(o.seconds, 0) DESC, f.id, i.address"""),
    "missed-fma": Query("products in loops whose only use may be the sum right behind them", f"""{_OF_LOOPS}
SELECT {_PLACE.format('p.address')}, p.mnemonic || ' ' || p.operands AS product, a.mnemonic || ' ' || a.operands AS sum,
       round(100 * COALESCE(o.seconds, 0) / {_ALL_TIME}, 1) AS percent_of_loop
FROM instruction p JOIN instruction a ON a.block = p.block AND a.address = (
         SELECT min(n.address) FROM instruction n WHERE n.block = p.block AND n.address > p.address
         AND instr(n.operands, substr(p.operands, 1, instr(p.operands, ',') - 1)) > 0)
     JOIN block b ON b.id = p.block JOIN function f ON f.id = b.function LEFT JOIN own o ON o.loop = b.loop
WHERE b.loop IS NOT NULL AND replace(p.mnemonic, 'v', '') IN ('mulss', 'mulsd', 'mulps', 'mulpd')
  AND replace(a.mnemonic, 'v', '') IN ('add' || substr(p.mnemonic, -2), 'sub' || substr(p.mnemonic, -2))
ORDER BY COALESCE(o.seconds, 0) DESC, f.id, p.address"""),
    "spills": Query("registers that are put on the stack and fetched again in one loop", f"""{_OF_LOOPS}
SELECT {_PLACE.format('w.address')}, w.operands AS spill, printf('%#x', r.address) AS filled_at, r.operands AS fill,
       round(100 * COALESCE(o.seconds, 0) / {_ALL_TIME}, 1) AS percent_of_loop
FROM instruction w JOIN block b ON b.id = w.block JOIN block c ON c.loop = b.loop
     JOIN instruction r ON r.block = c.id AND r.mnemonic = w.mnemonic
          AND substr(r.operands, instr(r.operands, ', ') + 2) = substr(w.operands, 1, instr(w.operands, ',') - 1)
     JOIN function f ON f.id = b.function LEFT JOIN own o ON o.loop = b.loop
WHERE w.mnemonic LIKE '%mov%' AND w.operands GLOB '*ptr [[]r[sb]p*],*'
ORDER BY COALESCE(o.seconds, 0) DESC, f.id, w.address"""),
    "calls-in-loops": Query("calls that stand in loops, by the time of the loop", f"""{_OF_LOOPS}
SELECT {_PLACE.format('k.address')}, COALESCE(k.symbol, g.name, printf('%#x', k.target), 'through a pointer')
       AS callee, l.depth, round(100 * COALESCE(o.seconds, 0) / {_ALL_TIME}, 1) AS percent_of_loop
FROM call k JOIN block b ON b.id = k.block JOIN loop l ON l.id = b.loop JOIN function f ON f.id = b.function
     LEFT JOIN function g ON g.id = k.callee LEFT JOIN own o ON o.loop = b.loop
ORDER BY COALESCE(o.seconds, 0) DESC, f.id, k.address"""),
}
