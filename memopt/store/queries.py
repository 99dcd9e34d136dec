"""The named queries of ``memopt query``: the questions that engineers ask a profile first.

Each is one SELECT over the tables of ``memopt.store.schema``. A title that begins with options (``--memory:``) tells
which ``memopt profile`` option fills the tables that the query reads.
"""

from __future__ import annotations

from collections.abc import Mapping

from memopt.ir.frozen import dataclass

# Fragments of SQL: the seconds of all samples; the seconds of each loop itself, as the table ``own``; columns for the
# function and an address.
_ALL_TIME = "(SELECT sum(seconds) FROM sample)"
_OF_LOOPS = """
WITH own AS (SELECT b.loop AS loop, sum(s.seconds) AS seconds FROM sample s JOIN block b ON b.id = s.block
             WHERE b.loop IS NOT NULL GROUP BY b.loop)
"""
_PLACE = "f.name AS function, printf('%#x', {0}) AS address"
# Columns for the source line of ``l``, a loop, and of ``i``, an instruction: the name of the file, and the line.
_LOOP_LINE, _LINE = (f"replace({t}.file, rtrim({t}.file, replace({t}.file, '/', '')), '') AS file, {t}.line"
                     for t in ("l", "i"))
# The name of the object ``o`` that an access touches.
LEADS_TO = ("CASE o.kind WHEN 'block' THEN 'block of ' || COALESCE(o.name, '?') "
            "ELSE o.kind || COALESCE(' ' || o.name, '') END")
# Mnemonics that move vectors without requiring alignment.
_OF_VECTORS = "('movups', 'movupd', 'movdqu', 'lddqu', 'vmovups', 'vmovupd', 'vmovdqu', 'vlddqu')"


@dataclass(frozen=True, slots=True)
class Query:
    """A named query."""

    title: str  # one line for users: ``memopt query --list``
    sql: str


QUERIES: Mapping[str, Query] = {
    "hot-functions": Query("functions by their own time, without callees", f"""
SELECT f.name AS function, round(100 * sum(s.seconds) / {_ALL_TIME}, 1) AS percent,
       round(sum(s.seconds), 3) AS seconds, m.path AS image
FROM sample s JOIN block b ON b.id = s.block JOIN function f ON f.id = b.function JOIN image m ON m.id = f.image
GROUP BY f.id ORDER BY sum(s.seconds) DESC"""),
    "hot-loops": Query("loops by their time, inner loops included, callees not", f"""{_OF_LOOPS}
SELECT {_PLACE.format('l.header')}, {_LOOP_LINE}, l.depth, round(100 * sum(o.seconds) / {_ALL_TIME}, 1) AS percent,
       round(100 * sum(o.seconds * (o.loop = l.id)) / {_ALL_TIME}, 1) AS own_percent, m.path AS image
FROM loop l JOIN own o ON o.loop BETWEEN l.id AND l.last JOIN function f ON f.id = l.function
     JOIN image m ON m.id = f.image
GROUP BY l.id ORDER BY sum(o.seconds) DESC, l.id"""),
    "hot-instructions": Query("instructions by their share of the samples", f"""
SELECT {_PLACE.format('s.address')}, {_LINE}, i.mnemonic, i.operands,
       round(100 * sum(s.seconds) / {_ALL_TIME}, 1) AS percent
FROM sample s JOIN instruction i ON i.block = s.block AND i.address = s.address JOIN block b ON b.id = s.block
     JOIN function f ON f.id = b.function
GROUP BY s.image, s.address ORDER BY sum(s.seconds) DESC"""),
    "tree": Query("--exact: the calling context tree with loops: entries, iterations, instructions", f"""
WITH lines AS (
    SELECT c.id, 0 AS kind, c.id AS item, c.entries, NULL AS iterations, c.instructions, c.inclusive,
           COALESCE(f.name, printf('%#x', c.entry)) AS name, c.id AS under, NULL AS file, NULL AS line
    FROM context c LEFT JOIN function f ON f.id = c.function
    UNION ALL
    SELECT x.context, 1, x.loop, x.entries, x.iterations, x.instructions, x.inclusive,
           printf('loop %#x of ', l.header) || f.name, x.context, {_LOOP_LINE}
    FROM context_loop x JOIN loop l ON l.id = x.loop JOIN function f ON f.id = l.function)
SELECT (SELECT count(*) FROM context a WHERE n.under BETWEEN a.id AND a.last) AS depth, n.name, n.file, n.line,
       n.entries, n.iterations, n.instructions, n.inclusive,
       round(100.0 * n.inclusive / (SELECT sum(instructions) FROM context), 2) AS percent
FROM lines n WHERE n.inclusive * 1000 >= (SELECT sum(instructions) FROM context) ORDER BY n.id, n.kind, n.item"""),
    "counted-functions": Query("--exact: functions by the instructions executed in them, without callees", """
SELECT f.name AS function, sum(c.entries) AS entries, sum(c.instructions) AS instructions,
       round(100.0 * sum(c.instructions) / (SELECT sum(instructions) FROM context), 2) AS percent, m.path AS image
FROM context c JOIN function f ON f.id = c.function JOIN image m ON m.id = f.image
GROUP BY f.id ORDER BY sum(c.instructions) DESC"""),
    "counted-loops": Query("--exact: loops by the instructions executed in them and in their callees", f"""
SELECT {_PLACE.format('l.header')}, {_LOOP_LINE}, l.depth, sum(x.entries) AS entries, sum(x.iterations) AS iterations,
       sum(x.instructions) AS instructions, sum(x.inclusive) AS inclusive,
       round(100.0 * sum(x.inclusive) / (SELECT sum(instructions) FROM context), 2) AS percent, m.path AS image
FROM context_loop x JOIN loop l ON l.id = x.loop JOIN function f ON f.id = l.function JOIN image m ON m.id = f.image
GROUP BY l.id ORDER BY sum(x.inclusive) DESC, l.id"""),
    "parallel-candidates": Query("--memory, --dependences: loops with the dependences they carry, and working sets",
                                 f"""
WITH work AS (SELECT * FROM dependence WHERE loop IS NOT NULL AND NOT induction),
     memory AS (SELECT loop, min(CASE WHEN kind = 'RAW' AND NOT reduction THEN least END) AS distance,
                       max(reduction) AS sums, max(kind <> 'RAW' AND NOT reduction) AS reused FROM work GROUP BY loop),
     registers AS (SELECT loop, max(kind = 'sum') AS sums, max(kind = 'serial') AS serial,
                          group_concat(CASE kind WHEN 'unknown' THEN location END, ', ') AS unknown
                   FROM (SELECT DISTINCT * FROM carried) GROUP BY loop)
SELECT f.name AS function, printf('0x%x', l.header) AS loop, {_LOOP_LINE}, l.depth, sum(x.iterations) AS iterations,
       round(100.0 * sum(x.inclusive) / (SELECT sum(instructions) FROM context), 2) AS percent,
       CASE WHEN r.serial THEN 'serial, distance 1 or more'
            WHEN m.distance IS NOT NULL THEN 'serial, distance ' || m.distance || ' or more'
            WHEN r.unknown IS NOT NULL THEN 'unknown: ' || r.unknown
            WHEN max(COALESCE(m.sums, 0), COALESCE(r.sums, 0)) AND COALESCE(m.reused, 0)
                THEN 'parallel with a reduction and copies'
            WHEN max(COALESCE(m.sums, 0), COALESCE(r.sums, 0)) THEN 'parallel with a reduction'
            WHEN m.reused THEN 'parallel with copies'
            ELSE 'parallel' END AS through_memory,
       (SELECT round(sum(w.lines * w.entries) / sum(w.entries) / 1024, 1) FROM working_set w
        WHERE w.loop = l.id AND w.at_end = 1) AS kib, m.path AS image
FROM context_loop x JOIN loop l ON l.id = x.loop JOIN function f ON f.id = l.function JOIN image m ON m.id = f.image
     LEFT JOIN memory m ON m.loop = l.id LEFT JOIN registers r ON r.loop = l.id
WHERE EXISTS (SELECT 1 FROM watched) AND NOT EXISTS (SELECT 1 FROM watched WHERE complete = 0)
GROUP BY l.id HAVING sum(x.iterations) > sum(x.entries) ORDER BY sum(x.inclusive) DESC, l.id"""),
    "access-patterns": Query("--memory: access patterns: sequential, strided, irregular, by calling context", f"""
WITH main AS (SELECT access, bytes, max(count) AS count FROM stride GROUP BY access)
SELECT f.name AS function, printf('0x%x', a.address) AS address, i.mnemonic || ' ' || i.operands AS instruction,
       {_LINE}, a.kind, a.size, a.count,
       CASE WHEN a.lowest = a.highest THEN 'fixed'
            WHEN 10 * m.count >= 9 * (a.count - 1) THEN CASE WHEN abs(m.bytes) = a.size THEN 'sequential'
                                                             ELSE 'strided' END
            WHEN 2 * a.steady >= a.count THEN CASE WHEN abs(m.bytes) = a.size THEN 'sequential in pieces'
                                                   WHEN m.bytes = 0 THEN 'repeated'
                                                   ELSE 'strided in pieces' END
            ELSE 'irregular' END AS pattern, m.bytes AS stride, a.highest + a.size - a.lowest AS span,
       {LEADS_TO} || printf(' + 0x%x', o.offset) AS leads_to, a.context
FROM access a JOIN context c ON c.id = a.context LEFT JOIN main m ON m.access = a.id
     LEFT JOIN object o ON o.access = a.id
     LEFT JOIN function f ON f.id = c.function
     LEFT JOIN block b ON b.function = f.id AND a.address >= b.start AND a.address < b.end
     LEFT JOIN instruction i ON i.block = b.id AND i.address = a.address
GROUP BY a.id ORDER BY a.count DESC, a.id"""),
    "missing-prefetch": Query("--memory: reads beyond the level 2 cache that nothing prefetches: irregular, or strides "
                              "of 4 KiB or more", f"""
WITH main AS (SELECT access, bytes, max(count) AS count FROM stride GROUP BY access),
     steps AS (SELECT a.*, m.bytes AS step, 10 * m.count >= 9 * (a.count - 1) OR 2 * a.steady >= a.count AS even
               FROM access a JOIN main m ON m.access = a.id)
SELECT {_PLACE.format('s.address')}, {_LINE}, i.mnemonic || ' ' || i.operands AS instruction, sum(s.count) AS count,
       CASE WHEN min(s.even) THEN 'steps of ' || max(s.step) ELSE 'irregular' END AS pattern,
       max(s.highest - s.lowest) + s.size AS span, l.depth, m.path AS image
FROM steps s JOIN context c ON c.id = s.context JOIN function f ON f.id = c.function JOIN image m ON m.id = f.image
     JOIN block b ON b.function = f.id AND s.address >= b.start AND s.address < b.end JOIN loop l ON l.id = b.loop
     JOIN instruction i ON i.block = b.id AND i.address = s.address
WHERE s.kind <> 'W' AND s.highest - s.lowest > COALESCE((SELECT max(bytes) FROM cache WHERE level = 2), 1048576)
  AND (NOT s.even OR abs(s.step) >= 4096)
  AND NOT EXISTS (SELECT 1 FROM block q JOIN instruction p ON p.block = q.id
                  WHERE q.loop = b.loop AND p.mnemonic LIKE 'prefetch%')
GROUP BY f.id, s.address ORDER BY sum(s.count) DESC, s.address"""),
    "working-sets": Query("--memory: working sets of loops by the number of iterations, and the cache they fit in", f"""
SELECT f.name AS function, printf('0x%x', l.header) AS loop, {_LOOP_LINE}, l.depth,
       CASE WHEN w.at_end THEN 'end, ' ELSE '' END || round(w.iterations, 1) AS iterations, w.entries,
       round(w.lines / 1024, 1) AS kib, round(w.most_lines / 1024.0, 1) AS most_kib,
       round(w.pages / 1024, 1) AS pages_kib,
       COALESCE((SELECT k.name FROM cache k WHERE k.bytes >= w.lines ORDER BY k.level LIMIT 1), 'memory') AS fits_in,
       w.context
FROM working_set w JOIN loop l ON l.id = w.loop JOIN function f ON f.id = l.function
     JOIN context_loop x ON x.context = w.context AND x.loop = w.loop
ORDER BY x.inclusive DESC, w.context, w.loop, w.at_end, w.iterations"""),
    "hot-paths": Query("--paths: acyclic paths by the number of times they were taken", """
SELECT COALESCE(f.name, printf('0x%x', p.entry)) AS function, p.number, p.paths, round(p.count) AS count,
       round(100.0 * p.count / (SELECT sum(count) FROM path), 2) AS percent, p.blocks
FROM path p LEFT JOIN function f ON f.id = p.function ORDER BY p.count DESC, p.entry, p.number"""),
    "trip-counts": Query("--memory, --values: trip counts of loops, in classes of powers of two", f"""
SELECT f.name AS function, printf('0x%x', l.header) AS loop, {_LOOP_LINE}, l.depth, t.least AS iterations_from,
       2 * t.least - 1 AS iterations_to, sum(t.entries) AS entries,
       round(100.0 * sum(t.entries) / sum(sum(t.entries)) OVER (PARTITION BY t.loop), 2) AS percent
FROM trips t JOIN loop l ON l.id = t.loop JOIN function f ON f.id = l.function
GROUP BY t.loop, t.least ORDER BY sum(sum(t.least * t.entries)) OVER (PARTITION BY t.loop) DESC, t.loop, t.least"""),
    "cycles": Query("--values: cycles of functions and their loops: least, mean and most of an entry", f"""
WITH spent AS (SELECT context, loop, name, sum(count) AS count, min(least) AS least, max(most) AS most,
                      sum(total) AS total FROM value WHERE name IN ('cycles', 'own cycles')
               GROUP BY context, loop, name)
SELECT f.name AS function, CASE WHEN v.loop IS NULL THEN '' ELSE printf('0x%x', l.header) END AS loop,
       {_LOOP_LINE},
       sum(v.count) AS entries, min(v.least) AS least, round(sum(v.total) * 1.0 / sum(v.count)) AS mean,
       max(v.most) AS most, sum(v.total) AS cycles, sum(o.total) AS own_cycles,
       round(100.0 * sum(o.total) / (SELECT sum(total) FROM spent WHERE name = 'own cycles'), 2) AS percent
FROM spent v JOIN context c ON c.id = v.context JOIN function f ON f.id = c.function
     LEFT JOIN loop l ON l.id = v.loop
     LEFT JOIN spent o ON v.loop IS NULL AND o.context = v.context AND o.loop IS NULL AND o.name = 'own cycles'
WHERE v.name = 'cycles' GROUP BY f.id, v.loop
ORDER BY sum(sum(o.total)) OVER (PARTITION BY f.id) DESC, f.id, v.loop"""),
    "cycles-by-context": Query("--values: the calling context tree with cycles", """
WITH own AS (SELECT context, sum(total) AS cycles FROM value WHERE name = 'own cycles' GROUP BY context),
     whole AS (SELECT sum(cycles) AS cycles FROM own)
SELECT (SELECT count(*) FROM context a WHERE c.id BETWEEN a.id AND a.last) AS depth,
       COALESCE(f.name, printf('0x%x', c.entry)) AS name, c.entries, COALESCE(o.cycles, 0) AS own_cycles,
       sum(i.cycles) AS cycles, round(100.0 * sum(i.cycles) / whole.cycles, 2) AS percent
FROM whole JOIN context c JOIN own i ON i.context BETWEEN c.id AND c.last LEFT JOIN own o ON o.context = c.id
     LEFT JOIN function f ON f.id = c.function
GROUP BY c.id HAVING sum(i.cycles) * 1000 >= whole.cycles ORDER BY c.id"""),
    "cycle-classes": Query("--values: cycles of entries of functions and loops, in classes of powers of two", f"""
SELECT f.name AS function, CASE WHEN v.loop IS NULL THEN '' ELSE printf('0x%x', l.header) END AS loop,
       {_LOOP_LINE},
       d.least AS cycles_from, max(2 * d.least - 1, 0) AS cycles_to, sum(d.count) AS entries,
       round(100.0 * sum(d.count) / sum(sum(d.count)) OVER (PARTITION BY f.id, v.loop), 2) AS percent
FROM distribution d JOIN value v ON v.id = d.value JOIN context c ON c.id = v.context
     JOIN function f ON f.id = c.function LEFT JOIN loop l ON l.id = v.loop
WHERE v.name = 'cycles' GROUP BY f.id, v.loop, d.least
ORDER BY sum(sum(d.count * d.least)) OVER (PARTITION BY f.id, v.loop) DESC, f.id, v.loop, d.least"""),
    "values": Query("--values: arguments of functions and invariants of loops, with their most frequent value", f"""
WITH often AS (SELECT value, amount, max(count) AS count FROM frequent GROUP BY value)
SELECT f.name AS function, CASE WHEN v.loop IS NULL THEN '' ELSE printf('0x%x', l.header) END AS loop,
       {_LOOP_LINE}, v.name,
       v.count, v.least, v.most, COALESCE(v.alignment, 0) AS alignment, v.changes, o.amount AS often,
       round(100.0 * o.count / v.count, 1) AS percent, v.context
FROM value v JOIN often o ON o.value = v.id JOIN context c ON c.id = v.context
     LEFT JOIN function f ON f.id = c.function LEFT JOIN loop l ON l.id = v.loop
WHERE v.total IS NULL ORDER BY v.count DESC, v.id"""),
    "blocks": Query("--memory: allocations with their call chains, innermost call first, and the accesses to them", """
WITH RECURSIVE made AS (SELECT o.context, sum(a.count) AS accesses, count(*) AS by_instructions FROM object o
                        JOIN access a ON a.id = o.access WHERE o.context IS NOT NULL GROUP BY o.context),
     path AS (SELECT m.context, c.parent, 1 AS depth,
                     COALESCE(f.name, printf('0x%x', c.entry)) AS calls FROM made m JOIN context c ON c.id = m.context
              LEFT JOIN function f ON f.id = c.function
              UNION ALL
              SELECT p.context, c.parent, p.depth + 1, p.calls || ' < ' || COALESCE(f.name, printf('0x%x', c.entry))
              FROM path p JOIN context c ON c.id = p.parent LEFT JOIN function f ON f.id = c.function
              WHERE p.depth < 8)
SELECT p.calls, printf('0x%x', c.site) AS called_at, c.entries AS calls_in_all, m.accesses, m.by_instructions, m.context
FROM made m JOIN path p ON p.context = m.context JOIN context c ON c.id = m.context
WHERE p.depth = (SELECT max(depth) FROM path q WHERE q.context = m.context) ORDER BY m.accesses DESC, m.context"""),
    "banks": Query("--memory: accesses by their offset in the cache line, and the alignment of their addresses", """
SELECT f.name AS function, printf('0x%x', a.address) AS address, a.kind || a.size AS access, a.count, a.alignment,
       b.offset, round(100.0 * b.count / a.count, 1) AS percent, a.context
FROM bank b JOIN access a ON a.id = b.access JOIN context c ON c.id = a.context
     LEFT JOIN function f ON f.id = c.function
ORDER BY a.count DESC, a.id, b.offset"""),
    "derived-sets": Query("--affine: working sets of hot nests' loops, derived from subscripts and loop bounds", f"""
SELECT f.name AS function, printf('0x%x', l.header) AS loop, {_LOOP_LINE}, d.depth, d.iterations,
       round(d.lines / 1024.0, 1) AS kib, round(d.pages / 1024.0, 1) AS pages_kib,
       COALESCE((SELECT k.name FROM cache k WHERE k.bytes >= d.lines ORDER BY k.level LIMIT 1), 'memory') AS fits_in,
       CASE d.exact WHEN 1 THEN 'yes' ELSE 'without the last iteration' END AS exact
FROM derived_set d LEFT JOIN loop l ON l.id = d.loop LEFT JOIN function f ON f.id = l.function
ORDER BY d.nest, d.depth, d.loop, d.iterations"""),
    "patterns": Query("--memory: the first access pattern of each access; tables part and pattern hold all", """
SELECT f.name AS function, printf('0x%x', a.address) AS address, a.kind || a.size AS access, a.count, a.parts,
       printf('0x%x', p.address) AS first, t.level, t.text AS pattern, t.affine
FROM access a JOIN context c ON c.id = a.context LEFT JOIN function f ON f.id = c.function
     LEFT JOIN part p ON p.access = a.id AND p.position = 0 LEFT JOIN pattern t ON t.id = p.pattern
ORDER BY a.count DESC, a.id"""),
    "reuse-distances": Query("--reuse: reuse distances by loop: other lines touched between two touches of a line", f"""
SELECT f.name AS function, printf('0x%x', l.header) AS loop, {_LOOP_LINE}, COALESCE(r.lines, 'never before') AS lines,
       sum(r.count) AS count,
       round(100.0 * sum(r.count) / sum(sum(r.count)) OVER (PARTITION BY c.function, b.loop), 2) AS percent,
       CASE WHEN r.lines IS NULL THEN 'memory' ELSE COALESCE((
           SELECT k.name FROM cache k WHERE k.bytes >= 128 * r.lines ORDER BY k.level LIMIT 1), 'memory') END AS hits_in
FROM reuse r JOIN access a ON a.id = r.access JOIN context c ON c.id = a.context
     LEFT JOIN function f ON f.id = c.function
     LEFT JOIN block b ON b.function = c.function AND a.address >= b.start AND a.address < b.end
     LEFT JOIN loop l ON l.id = b.loop
GROUP BY c.function, b.loop, r.lines
ORDER BY sum(sum(r.count)) OVER (PARTITION BY c.function, b.loop) DESC, c.function, b.loop,
         r.lines IS NULL, r.lines"""),
    "worst-reuse": Query("--reuse: accesses by the number of reuses whose distance exceeds the caches", """
SELECT f.name AS function, printf('0x%x', a.address) AS address, a.kind || a.size AS access, sum(r.count) AS touches,
       sum(r.count * (r.lines IS NULL)) AS first_touches,
       sum(r.count * (r.lines * 64 >= (SELECT min(bytes) FROM cache))) AS beyond_first_cache,
       sum(r.count * (r.lines * 64 >= (SELECT max(bytes) FROM cache))) AS beyond_last_cache
FROM reuse r JOIN access a ON a.id = r.access JOIN context c ON c.id = a.context
     LEFT JOIN function f ON f.id = c.function
GROUP BY c.function, a.address, a.kind, a.size
ORDER BY COALESCE(beyond_last_cache, 0) DESC, COALESCE(beyond_first_cache, 0) DESC, touches DESC"""),
    "stride-histogram": Query("--memory: strides: distances between successive addresses of an access", """
SELECT s.bytes AS stride, sum(s.count) AS count,
       round(100.0 * sum(s.count) / (SELECT sum(count) FROM access), 2) AS percent,
       count(DISTINCT a.address) AS accesses
FROM stride s JOIN access a ON a.id = s.access GROUP BY s.bytes ORDER BY sum(s.count) DESC, s.bytes"""),
    "misaligned": Query("--memory: accesses at addresses that are no multiple of their size", """
SELECT f.name AS function, printf('0x%x', a.address) AS address, a.size, sum(a.count) AS count,
       round(100.0 * sum(a.misaligned) / sum(a.count), 2) AS percent_misaligned
FROM access a JOIN context c ON c.id = a.context LEFT JOIN function f ON f.id = c.function
GROUP BY c.function, a.address, a.size HAVING sum(a.misaligned) ORDER BY sum(a.misaligned) DESC, a.address"""),
    "dependences": Query("--memory, --dependences: dependences through memory, by the loop that carries them", f"""
SELECT d.kind, p.name AS source_function, printf('0x%x', d.source) AS source, q.name AS sink_function,
       printf('0x%x', d.sink) AS sink, printf('0x%x', l.header) AS carried_by, {_LOOP_LINE}, min(d.least) AS least,
       max(d.most) AS most, sum(d.count) AS count, max(d.reduction) AS reduction, max(d.induction) AS induction
FROM dependence d JOIN context a ON a.id = d.source_context JOIN context b ON b.id = d.sink_context
     LEFT JOIN function p ON p.id = a.function LEFT JOIN function q ON q.id = b.function
     LEFT JOIN loop l ON l.id = d.loop
GROUP BY d.kind, d.source, d.sink, d.loop, a.function, b.function ORDER BY sum(d.count) DESC, d.source, d.sink"""),
    "attribution": Query("--exact: functions by their own instructions, and by those of their loops with callees", """
WITH outermost AS (SELECT c.function, sum(x.inclusive) AS inclusive
                   FROM context_loop x JOIN context c ON c.id = x.context JOIN loop l ON l.id = x.loop
                   WHERE l.parent IS NULL GROUP BY c.function),
     own AS (SELECT function, sum(instructions) AS instructions FROM context GROUP BY function)
SELECT f.name AS function, round(100.0 * o.instructions / (SELECT sum(instructions) FROM context), 2) AS own_percent,
       round(100.0 * COALESCE(t.inclusive, 0) / (SELECT sum(instructions) FROM context), 2) AS loops_percent,
       (SELECT count(DISTINCT k.address) FROM call k JOIN block b ON b.id = k.block
        WHERE b.function = f.id AND b.loop IS NOT NULL) AS calls_in_loops, m.path AS image
FROM own o JOIN function f ON f.id = o.function JOIN image m ON m.id = f.image
     LEFT JOIN outermost t ON t.function = f.id
ORDER BY o.instructions DESC"""),
    "listing": Query("--exact: loop headers, back edges and calls in address order, with counts", f"""
WITH counted AS (SELECT loop, sum(iterations) AS iterations, sum(inclusive) AS inclusive
                 FROM context_loop GROUP BY loop),
     called AS (SELECT p.function, c.site, sum(c.entries) AS entries, sum(c.inclusive) AS inclusive
                FROM context c JOIN context p ON p.id = c.parent WHERE c.site IS NOT NULL GROUP BY p.function, c.site),
     marks AS (
    SELECT l.function, l.header AS address, 'loop' AS what, l.id AS loop, n.iterations AS count, n.inclusive
    FROM loop l JOIN counted n ON n.loop = l.id
    UNION ALL
    SELECT b.function, max(i.address), 'back', l.id, NULL, NULL FROM edge e JOIN block b ON b.id = e.source
    JOIN instruction i ON i.block = b.id JOIN loop l ON l.function = b.function AND l.header = e.address
    JOIN counted n ON n.loop = l.id WHERE e.back = 1 GROUP BY b.id, l.id
    UNION ALL
    SELECT k.function, k.site, 'call', (SELECT b.loop FROM block b WHERE b.function = k.function
                                        AND k.site >= b.start AND k.site < b.end), k.entries, k.inclusive
    FROM called k WHERE k.function IS NOT NULL)
SELECT {_PLACE.format('s.address')}, {_LINE}, s.what, s.loop, s.count, s.inclusive,
       round(100.0 * s.inclusive / (SELECT sum(instructions) FROM context), 2) AS percent, m.path AS image
FROM marks s JOIN function f ON f.id = s.function JOIN image m ON m.id = f.image
     LEFT JOIN block b ON b.function = f.id AND s.address >= b.start AND s.address < b.end
     LEFT JOIN instruction i ON i.block = b.id AND i.address = s.address
ORDER BY f.image, f.start, s.address"""),
    "unobserved": Query("--exact: the share of the samples in code that was not counted", """
SELECT sum(outside) AS samples_unobserved, sum(samples) AS samples,
       round(100.0 * sum(outside) / sum(samples), 2) AS percent FROM observation"""),
    "counted-files": Query("--exact: executed instructions by file", """
SELECT m.path AS image, sum(e.instructions) AS instructions,
       round(100.0 * sum(e.instructions) / (SELECT sum(instructions) FROM execution), 2) AS percent
FROM execution e JOIN image m ON m.id = e.image GROUP BY m.id ORDER BY sum(e.instructions) DESC"""),
    "block-sizes": Query("basic blocks by their number of instructions", """
SELECT instructions, count(*) AS blocks FROM (SELECT count(*) AS instructions FROM instruction GROUP BY block)
GROUP BY instructions ORDER BY instructions"""),
    "instruction-mix": Query("mnemonics by their number in the code, with their share of the time", f"""
SELECT i.mnemonic, count(*) AS instructions, round(100 * COALESCE(sum(t.seconds), 0) / {_ALL_TIME}, 1) AS percent
FROM instruction i LEFT JOIN (SELECT block, address, sum(seconds) AS seconds FROM sample GROUP BY block, address) t
     ON t.block = i.block AND t.address = i.address
GROUP BY i.mnemonic ORDER BY COALESCE(sum(t.seconds), 0) DESC, count(*) DESC"""),
    "unaligned-vectors": Query("unaligned vector moves in loops", f"""{_OF_LOOPS}
SELECT {_PLACE.format('i.address')}, {_LINE}, i.mnemonic, i.operands,
       round(100 * COALESCE(o.seconds, 0) / {_ALL_TIME}, 1) AS percent_of_loop
FROM instruction i JOIN block b ON b.id = i.block JOIN function f ON f.id = b.function
     LEFT JOIN own o ON o.loop = b.loop
WHERE b.loop IS NOT NULL AND i.mnemonic IN {_OF_VECTORS} AND i.operands LIKE '%[%'
ORDER BY COALESCE(o.seconds, 0) DESC, f.id, i.address"""),
    "missed-fma": Query("products in loops that could be fused with the sum behind them", f"""{_OF_LOOPS}
SELECT {_PLACE.format('p.address')}, {_LINE.replace('i.', 'p.')}, p.mnemonic || ' ' || p.operands AS product,
       a.mnemonic || ' ' || a.operands AS sum,
       round(100 * COALESCE(o.seconds, 0) / {_ALL_TIME}, 1) AS percent_of_loop
FROM instruction p JOIN instruction a ON a.block = p.block AND a.address = (
         SELECT min(n.address) FROM instruction n WHERE n.block = p.block AND n.address > p.address
         AND instr(n.operands, substr(p.operands, 1, instr(p.operands, ',') - 1)) > 0)
     JOIN block b ON b.id = p.block JOIN function f ON f.id = b.function LEFT JOIN own o ON o.loop = b.loop
WHERE b.loop IS NOT NULL AND replace(p.mnemonic, 'v', '') IN ('mulss', 'mulsd', 'mulps', 'mulpd')
  AND replace(a.mnemonic, 'v', '') IN ('add' || substr(p.mnemonic, -2), 'sub' || substr(p.mnemonic, -2))
ORDER BY COALESCE(o.seconds, 0) DESC, f.id, p.address"""),
    "spills": Query("registers that a loop spills to the stack and reloads", f"""{_OF_LOOPS}
SELECT {_PLACE.format('w.address')}, {_LINE.replace('i.', 'w.')},
       w.operands AS spill, printf('%#x', r.address) AS filled_at, r.operands AS fill,
       round(100 * COALESCE(o.seconds, 0) / {_ALL_TIME}, 1) AS percent_of_loop
FROM instruction w JOIN block b ON b.id = w.block JOIN block c ON c.loop = b.loop
     JOIN instruction r ON r.block = c.id AND r.mnemonic = w.mnemonic
          AND substr(r.operands, instr(r.operands, ', ') + 2) = substr(w.operands, 1, instr(w.operands, ',') - 1)
     JOIN function f ON f.id = b.function LEFT JOIN own o ON o.loop = b.loop
WHERE w.mnemonic LIKE '%mov%' AND w.operands GLOB '*ptr [[]r[sb]p*],*'
ORDER BY COALESCE(o.seconds, 0) DESC, f.id, w.address"""),
    "calls-in-loops": Query("calls in loops, by the time of the loop", f"""{_OF_LOOPS}
SELECT {_PLACE.format('k.address')}, {_LOOP_LINE},
       COALESCE(k.symbol, g.name, printf('%#x', k.target), 'through a pointer') AS callee, l.depth,
       round(100 * COALESCE(o.seconds, 0) / {_ALL_TIME}, 1) AS percent_of_loop
FROM call k JOIN block b ON b.id = k.block JOIN loop l ON l.id = b.loop JOIN function f ON f.id = b.function
     LEFT JOIN function g ON g.id = k.callee LEFT JOIN own o ON o.loop = b.loop
ORDER BY COALESCE(o.seconds, 0) DESC, f.id, k.address"""),
}
