"""Debuggers and profilers get through new code to its callers."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from memopt.elf.frame_rows import RBP, RETURN_ADDRESS, Rule, UnwindRow, UnwindRows, in_frame, row_at
from memopt.elf.image import PT_GNU_EH_FRAME, ElfError, Image
from memopt.elf.rewriting.frames import eh_frame, search_table
from memopt.elf.rewriting.undo import undone
from memopt.elf.rewriting.writer import written
from memopt.elf.symbols import Symbols
from memopt.elf.unwind import description_at, function_range_at, search_entries
from tests.support.effort import some_rows
from tests.support.rewritten import counting, function_start, run
from tests.support.tools import need

SOURCE = r"""
#include <alloca.h>
#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
int main(void);
static void handle(int number) {
    void *found[32];
    int count = backtrace(found, 32), in_main = 0;
    for (int i = 0; i < count; i++)
        in_main += (unsigned long)found[i] - (unsigned long)main < 400;
    printf("signal %d, main %d\n", number, in_main);
}
#define PLACE(name) __asm__ volatile(".globl " name "\n.type " name ", @function\n" name ": .fill 8, 1, 0x90" ::: "rbx")
__attribute__((noinline)) int pushes(int n) { char text[40]; sprintf(text, "%d", n); PLACE("pushed"); return text[0]; }
__attribute__((noinline)) int allocates(int n) {
    char *text = alloca(n + 20);
    sprintf(text, "%d", n);
    PLACE("allocated");
    return text[0];
}
__attribute__((noinline)) int leaf(int n) { PLACE("plain"); return n + 1; }
int main(void) {
    void *warm[2];
    backtrace(warm, 2);
    signal(SIGTRAP, handle);
    printf("%d\n", pushes(7) + allocates(8) + leaf(9));
    return 0;
}
"""
PLACES = ("pushed", "allocated", "plain", "leaf")
TREATMENTS = ("", "strip -o OUT IN", "strip -g -o OUT IN", "objcopy IN OUT", "eu-strip -o OUT IN")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("frames") / "program"
    subprocess.run(["gcc", "-O1", "-g", "-fcf-protection=none", "-xc", "-", "-o", path], input=SOURCE.encode(),
                   check=True)
    return path


def trapping(program: Path, place: str, out: Path) -> bytes:
    with Image(str(program)) as image:
        content = written(image, counting(image, function_start(image, place), trap=True))
    out.write_bytes(content)
    out.chmod(0o755)
    return content


@pytest.mark.parametrize(("place", "treatment"), some_rows(((p, t) for p in PLACES for t in TREATMENTS), 5))
def test_a_signal_handler_sees_the_callers(program: Path, tmp_path: Path, place: str, treatment: str) -> None:
    out = tmp_path / "out"
    content = trapping(program, place, out)
    if treatment:
        need(treatment.split()[0])
        treated = tmp_path / "treated"
        command = [{"IN": str(out), "OUT": str(treated)}.get(word, word) for word in treatment.split()]
        subprocess.run(command, check=True)
        out = treated
    assert b"signal 5, main 1\n" in _untraced(out)
    assert undone(content).content == program.read_bytes()


def _untraced(path: Path) -> bytes:
    return subprocess.run([path], capture_output=True, check=True).stdout


def test_without_rows_it_does_not(program: Path, tmp_path: Path) -> None:
    with Image(str(program)) as image:
        addition = replace(counting(image, function_start(image, "pushed"), trap=True), unwind=())
        out = tmp_path / "out"
        out.write_bytes(written(image, addition))
        out.chmod(0o755)
    assert b"signal 5, main 0\n" in _untraced(out)


def test_gdb_shows_the_callers_and_the_name(program: Path, tmp_path: Path) -> None:
    need("gdb")
    trapping(program, "pushed", tmp_path / "out")
    told = subprocess.run(["gdb", "-nx", "-batch", "-ex", "run", "-ex", "bt", tmp_path / "out"], capture_output=True,
                          text=True).stdout
    assert "#0" in told
    assert " in memopt:pushes ()" in told  # it is in the place of pushes, in whose frame it runs
    assert " in main () at" in told


def test_the_search_table_holds_old_and_new_entries(program: Path, tmp_path: Path) -> None:
    with Image(str(program)) as image:
        old = search_entries(image)
        addition = counting(image, function_start(image, "leaf"))
        new = Image.of(written(image, addition))
    entries = search_entries(new)
    assert old is not None
    assert entries is not None
    assert set(old) < set(entries)
    assert len(entries) == len(old) + 1
    assert entries == sorted(entries)
    rows = addition.unwind[0]
    assert function_range_at(new, rows.start) == (rows.start, rows.end)
    assert [row_at(new, row.start) for row in rows.rows] == list(rows.rows)
    header = next(s for s in new.segments if s.kind == PT_GNU_EH_FRAME)
    assert next(s for s in new.sections if s.name == ".eh_frame_hdr").address == header.address


def test_readers_find_no_fault(program: Path, tmp_path: Path) -> None:
    need("eu-elflint")
    trapping(program, "pushed", tmp_path / "out")
    told = subprocess.run(["eu-elflint", "--gnu-ld", tmp_path / "out"], capture_output=True, text=True).stdout
    assert told == "No errors\n"
    decoded = subprocess.run(["readelf", "--debug-dump=frames", tmp_path / "out"], capture_output=True, text=True)
    assert "Warning" not in decoded.stderr


def test_the_new_code_has_symbols_and_old_numbers_stay(program: Path) -> None:
    with Image(str(program)) as image:
        new = Image.of(written(image, counting(image, function_start(image, "main"))))
        old_functions, functions = set(Symbols(image).functions), set(Symbols(new).functions)
        added = functions - old_functions
        assert old_functions < functions
        assert {f.name for f in added} == {"memopt:main"}
        table = next(s for s in new.sections if s.name == ".symtab")
        assert table.info == next(s for s in image.sections if s.name == ".symtab").info + 1


def test_every_kind_of_rule_is_written_as_it_is_read(program: Path) -> None:
    rules = ((0, Rule("val_offset", -24)), (1, Rule("undefined")), (2, Rule("same")), (3, Rule("register", 12)),
             (6, Rule("expression", expression=b"\x76\x10")), (12, Rule("offset", 16)),
             (13, Rule("val_expression", expression=b"\x77\x08")), (RETURN_ADDRESS, Rule("offset", -8)))
    first = UnwindRow(0, 7, 8, b"", ((RETURN_ADDRESS, Rule("offset", -8)),))
    with Image(str(program)) as image:
        addition = counting(image, function_start(image, "leaf"))
        start, end = addition.unwind[0].start, addition.unwind[0].end
        rows = (UnwindRow(start, *_fields(first)), UnwindRow(start + 3, 6, -16, b"", rules),
                UnwindRow(start + 9, 0, 0, b"\x76\x08\x06", rules[3:]), UnwindRow(start + 12, 7, 300, b"", first.saved))
        new = Image.of(written(image, replace(addition, unwind=(UnwindRows(start, end, rows),))))
    found = [row_at(new, at) for at in range(start, end)]
    for row, after in zip(rows, (*(r.start for r in rows[1:]), end), strict=False):
        for at in range(row.start, after):
            got = found[at - start]
            assert got is not None
            assert (got.start, got.expression or got.offset, got.saved) == (
                row.start, row.expression or row.offset, row.saved)


def _fields(row: UnwindRow) -> tuple[int, int, bytes, tuple[tuple[int, Rule], ...]]:
    return row.register, row.offset, row.expression, row.saved


def test_a_frame_in_rbp_tells_where_registers_are() -> None:
    entry = UnwindRow(0x10, 7, 32, b"", ((3, Rule("offset", -16)), (RETURN_ADDRESS, Rule("offset", -8))))
    inside = in_frame(entry, 0x100, {RBP: 40, 3: 48, 12: -200})
    assert (inside.start, inside.register, inside.offset) == (0x100, 7, 32)
    assert dict(inside.saved) == {**dict(entry.saved), RBP: Rule("expression", expression=b"\x76\x28"),
                                  12: Rule("expression", expression=b"\x76\xb8\x7e")}
    on_rbp = in_frame(UnwindRow(0, RBP, 16, b"", ((RBP, Rule("offset", -16)),)), 0x100, {RBP: 40})
    assert on_rbp.expression == b"\x76\x28\x06\x23\x10"  # breg6 40, deref, plus_uconst 16
    assert dict(on_rbp.saved) == {RBP: Rule("offset", -16)}


def test_what_cannot_be_said_is_an_error() -> None:
    row = UnwindRow(0, 7, 8, b"", ((3, Rule("offset", -9)),))
    with pytest.raises(ElfError, match="unaligned"):
        eh_frame([UnwindRows(0, 5, (row,))], 0x1000)
    with pytest.raises(ElfError, match="too far"):
        search_table([(0, 8), (1 << 40, 16)], 0, 0)


def test_rows_of_damaged_tables_are_none(program: Path) -> None:
    content = bytearray(program.read_bytes())
    image = Image.of(bytes(content))
    start = function_start(image, "pushes")
    entry = description_at(image, start)
    assert entry is not None
    assert row_at(image, start) is not None
    for at in range(40):
        for value in (0, 0xFF, 0x2D):
            damaged = bytearray(content)
            damaged[image.offset_of(entry) + at] = value
            row_at(Image.of(bytes(damaged)), start)
    assert row_at(image, 0) is None
    assert run([str(program)]).status == 0
