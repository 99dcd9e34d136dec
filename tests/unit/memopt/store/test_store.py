"""The file of a profile: what it holds, what it never overwrites, and what can be asked."""

from __future__ import annotations

import csv
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from memopt.cfg.functions import structures
from memopt.elf.image import Image
from memopt.elf.lines import SourceLines
from memopt.elf.symbols import Symbols
from memopt.store import schema
from memopt.store.ask import answer, names
from memopt.store.queries import QUERIES
from memopt.store.schema import StoreError, create, open_existing
from memopt.store.static import add_functions, add_image
from tests.conftest import Build


@pytest.fixture
def profile(build: Build, tmp_path: Path) -> Path:
    """Of a matrix product, with ten seconds in its innermost loop and one in main."""
    path = tmp_path / "a.db"
    connection = create(str(path))
    program = str(build("gemm_ijk.c"))
    image = add_image(connection, program)
    with Image(program) as opened:
        add_functions(connection, image, structures(opened, Symbols(opened).everything),
                      SourceLines(str(path)), lambda _: True)
    connection.execute("""INSERT INTO sample SELECT 1, ?, b.id, b.start, 10, 10.0 FROM block b
        JOIN loop l ON l.id = b.loop JOIN function f ON f.id = b.function
        WHERE f.name = 'dgemm' AND l.depth = 3 LIMIT 1""", (image,))
    connection.execute("""INSERT INTO sample SELECT 1, ?, b.id, b.start, 1, 1.0 FROM block b
        JOIN function f ON f.id = b.function WHERE f.name = 'main' AND b.loop IS NULL LIMIT 1""", (image,))
    connection.close()
    return path


def asked(path: Path, question: str) -> list[dict[str, object]]:
    (text,) = answer(str(path), question, "json")
    return list(json.loads(text))


def test_the_structure_is_that_of_the_code(profile: Path, build: Build) -> None:
    with Image(str(build("gemm_ijk.c"))) as image:
        product = next(f for f in structures(image, Symbols(image).everything) if f.function.name == "dgemm")
    (counts,) = asked(profile, """SELECT count(DISTINCT b.id) AS blocks, count(*) AS instructions,
        sum(length(i.bytes)) AS bytes
        FROM block b JOIN function f ON f.id = b.function JOIN instruction i ON i.block = b.id
        WHERE f.name = 'dgemm'""")
    blocks = product.graph.blocks.values()
    assert counts == {"blocks": len(blocks), "instructions": sum(len(b.instructions) for b in blocks),
                      "bytes": sum(b.end - b.start for b in blocks)}
    loops = asked(profile, """SELECT l.header, l.depth, l.irreducible, p.header AS parent FROM loop l
        JOIN function f ON f.id = l.function LEFT JOIN loop p ON p.id = l.parent WHERE f.name = 'dgemm'
        ORDER BY l.id""")
    expected = product.nesting.loops
    assert loops == [{"header": x.header, "depth": x.depth, "irreducible": 0,
                      "parent": None if x.parent is None else expected[x.parent].header} for x in expected]
    back = asked(profile, """SELECT b.start AS source, e.address FROM edge e JOIN block b ON b.id = e.source
        JOIN function f ON f.id = b.function WHERE f.name = 'dgemm' AND e.back""")
    assert {(row["source"], row["address"]) for row in back} == {e for x in expected for e in x.back_edges}
    called = asked(profile, """SELECT k.symbol, g.name FROM call k JOIN block b ON b.id = k.block
        JOIN function f ON f.id = b.function LEFT JOIN function g ON g.id = k.callee WHERE f.name = 'main'""")
    assert "dgemm" in {row["name"] for row in called}
    assert {"printf", "calloc", "malloc", "aligned_alloc"} & {row["symbol"] for row in called}


def test_time_counts_for_the_loops_around(profile: Path) -> None:
    rows = [r for r in asked(profile, "hot-loops") if r["function"] == "dgemm"]
    assert {r["depth"]: (r["percent"], r["own_percent"]) for r in rows} == {
        1: (90.9, 0.0), 2: (90.9, 0.0), 3: (90.9, 90.9)}
    assert [(r["function"], r["percent"]) for r in asked(profile, "hot-functions")] == [("dgemm", 90.9), ("main", 9.1)]


@pytest.mark.parametrize("name", list(QUERIES))
def test_every_named_query_is_answered(profile: Path, name: str) -> None:
    table, text = (list(answer(str(profile), name, form)) for form in ("table", "csv"))
    rows = list(csv.reader(text))
    assert len(rows) == 1 + len(asked(profile, name))
    if len(table) > len(rows):
        assert len(rows) == 1
        assert table.pop().startswith("no rows: ")
    assert len(table) == len(rows)
    assert table[0].split() == rows[0]
    assert any(line.startswith(name) for line in names())


def test_an_answer_without_rows_says_what_the_profile_lacks(profile: Path) -> None:
    *_, why = answer(str(profile), "counted-loops", "table")
    assert why.startswith("no rows: this profile has nothing in context, context_loop; "
                          "this profile can answer hot-functions, hot-loops, ")
    answered = why.split("; ")[1].removeprefix("this profile can answer ").split(", ")
    assert all(asked(profile, name) for name in answered if name in ("hot-functions", "hot-loops", "hot-instructions"))
    assert "counted-loops" not in answered
    assert len(list(answer(str(profile), "SELECT * FROM function WHERE name = 'none'", "table"))) == 1
    assert list(answer(str(profile), "counted-loops", "json")) == ["[]"]


def test_what_a_product_misses(profile: Path) -> None:
    missed = [r for r in asked(profile, "missed-fma") if r["function"] == "dgemm"]
    assert [r["percent_of_loop"] for r in missed] == [90.9]
    assert str(missed[0]["product"]).startswith("mulsd")


@pytest.mark.parametrize(("question", "why"), [
    ("hot-lops", "no query has this name"), ("SELECT nothing FROM nowhere", "the query failed"),
    ("DELETE FROM sample", "the query failed"), ("SELECT 1; SELECT 2", "the query failed")])
def test_what_cannot_be_asked(profile: Path, question: str, why: str) -> None:
    before = profile.read_bytes()
    with pytest.raises(StoreError, match=why):
        list(answer(str(profile), question, "table"))
    assert profile.read_bytes() == before


def test_nothing_but_a_profile_is_overwritten(profile: Path, tmp_path: Path) -> None:
    create(str(profile)).close()
    assert asked(profile, "SELECT count(*) AS n FROM function") == [{"n": 0}]
    other, database = tmp_path / "thesis.txt", tmp_path / "other.db"
    other.write_text("years of work")
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE years_of_work (page)")
    for path in (other, database, tmp_path, tmp_path / "no" / "folder.db"):
        with pytest.raises(StoreError):
            create(str(path))
    assert other.read_text() == "years of work"
    for path in (other, database, tmp_path / "nothing.db"):
        with pytest.raises(StoreError):
            open_existing(str(path))


def test_versions(profile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older file is read as one of this version; a newer one is not read."""
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    monkeypatch.setattr(schema, "_MIGRATIONS", {schema.VERSION - 1: lambda connection: connection.executescript(
        "ALTER TABLE sample RENAME COLUMN count TO samples")})
    before = profile.read_bytes()
    assert asked(profile, "SELECT sum(samples) AS n FROM sample") == [{"n": 11}]
    assert profile.read_bytes() == before
    monkeypatch.setattr(schema, "VERSION", 0)
    with pytest.raises(StoreError, match="newer"):
        open_existing(str(profile))


def test_older_files_have_all_tables(profile: Path) -> None:
    def columns() -> dict[str, list[object]]:
        with closing(open_existing(str(profile))) as connection:
            return {name: [row[1] for row in connection.execute(f"PRAGMA table_info({name})")] for (name,) in
                    connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()}

    expected = columns()
    younger = schema._VALUES + schema._THREADS + schema._CARRIED
    for version, gone in ((5, ["carried"]), (4, ["carried", "thread"]), (3, re.findall(r"CREATE TABLE (\w+)", younger)),
                          (2, re.findall(r"CREATE TABLE (\w+)", schema._MEMORY + younger))):
        with closing(sqlite3.connect(profile)) as connection:
            connection.executescript("".join(f"DROP TABLE IF EXISTS {name};" for name in gone))
            if version == 5:
                connection.executescript("".join(f"ALTER TABLE {table} DROP COLUMN {column};"
                                                 for table in ("loop", "instruction")
                                                 for column in ("file", "line", "inlined")))
                before = ", ".join(str(name) for name in expected["dependence"][:-1])
                connection.executescript(f"DROP TABLE dependence; CREATE TABLE dependence ({before}  -- as it was\n)")
            if version == 3:
                before = ", ".join(str(name) for name in expected["access"][:-1])
                connection.executescript(f"DROP TABLE access; CREATE TABLE access ({before}  -- as it was\n)")
            connection.execute(f"PRAGMA user_version = {version}")
        assert columns() == expected


def test_no_link_is_followed_to_a_new_file(tmp_path: Path) -> None:
    """Somebody else may have placed one; the earlier profile under its name is removed, not the file it leads to."""
    target, link = tmp_path / "theirs", tmp_path / "p.db"
    link.symlink_to(target)
    with pytest.raises(StoreError):
        create(str(link))
    assert not target.exists()
    create(str(target)).close()
    create(str(link)).close()
    assert not link.is_symlink()
