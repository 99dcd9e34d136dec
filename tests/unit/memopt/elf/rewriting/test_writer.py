"""Programs and libraries with a counting function run as before, and so they do after the tools that people use."""

from __future__ import annotations

import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from memopt.elf.executable import check_rewritten
from memopt.elf.image import PT_LOAD, ElfError, Image
from memopt.elf.rewriting.refusals import NotRewritable
from memopt.elf.rewriting.room import room
from memopt.elf.rewriting.undo import undone
from memopt.elf.rewriting.writer import Addition, Patch, build_id, written
from memopt.ir.reasons import Reason, VerifyError
from tests.support.effort import some, some_rows
from tests.support.rewritten import STATE_LIMIT, Ran, counted, counting, function_start, run
from tests.support.tools import need

SOURCE = Path(__file__).parents[4] / "programs" / "rewritten.cpp"
BUILDS = {
    "pie": ("g++", "-g"), "fixed address": ("g++", "-no-pie", "-fno-pie"), "static": ("g++", "-static"),
    "static-pie": ("g++", "-static-pie"), "stripped": ("g++", "-s"), "clang": ("clang++", "-O2"),
    "relro": ("g++", "-Wl,-z,relro,-z,now"), "no relro": ("g++", "-Wl,-z,norelro"),
    "one segment for all code": ("g++", "-Wl,-z,noseparate-code"), "no build id": ("g++", "-Wl,--build-id=none"),
    "large pages": ("g++", "-Wl,-z,max-page-size=0x200000"), "relr": ("g++", "-Wl,-z,pack-relative-relocs"),
    "control-flow notes": ("g++", "-fcf-protection=full", "-Wl,-z,ibt,-z,shstk"),
    "old hash": ("g++", "-Wl,--hash-style=sysv"), "both hashes": ("g++", "-Wl,--hash-style=both"),
    "gold": ("g++", "-fuse-ld=gold"), "lld": ("clang++", "-fuse-ld=lld"),
    "lld, static": ("clang++", "-fuse-ld=lld", "-static"),
}
LINKERS = {"-fuse-ld=gold": "ld.gold", "-fuse-ld=lld": "ld.lld"}
TOOLS = {
    "strip": "strip -o OUT IN", "strip -g": "strip -g -o OUT IN", "objcopy": "objcopy IN OUT",
    "eu-strip": "eu-strip -o OUT IN", "llvm-strip": "llvm-strip -o OUT IN",
    "rpath": "patchelf --set-rpath /nowhere/at/all/that/is/long --output OUT IN",
    "needed": "patchelf --add-needed libm.so.6 --output OUT IN",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rewritten")


def built(folder: Path, name: str) -> Path:
    compiler, *flags = BUILDS[name]
    need(compiler, *(LINKERS[f] for f in flags if f in LINKERS))
    path = folder / name
    if not path.exists():
        subprocess.run([compiler, "-O2", *flags, "-o", path, SOURCE], check=True)
    return path


def rewritten(path: Path) -> Path:
    """The file in which ``work`` counts; where the file is stripped, its entry point."""
    with Image(str(path)) as image:
        try:
            address = function_start(image, "work")
        except StopIteration:
            address = image.entry
        content = counted(image, address)
    out = path.with_name(f"{path.name}, rewritten")
    out.write_bytes(content)
    out.chmod(0o755)
    return out


def as_before(path: Path, out: Path) -> Ran:
    """Runs the rewritten file ``out`` and compares it with the original; its counter counts."""
    told, found = run([str(path)]), run([str(out)])
    assert (found.output, found.errors, found.status) == (told.output, told.errors, told.status)
    assert told.output.count(b"\n") >= 6
    return found


def applied(tool: str, source: Path, to: Path) -> bool:
    """Whether the tool has made ``to`` from ``source``."""
    words = TOOLS[tool].split()
    need(words[0])
    command = [{"IN": str(source), "OUT": str(to)}.get(word, word) for word in words]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("name", some_rows(((b,) for b in BUILDS), 3))
def test_programs_run_as_before_and_are_undone_to_the_byte(folder: Path, name: str) -> None:
    path = built(folder, name)
    out = rewritten(path)
    assert as_before(path, out).count == (2 if name != "stripped" else 1)
    content = out.read_bytes()
    back = undone(content)
    assert back.whole
    assert back.content == path.read_bytes()
    assert len(content) - path.stat().st_size < 64 << 10


@pytest.mark.parametrize(("name", "tool"), some_rows(((b, t) for b in BUILDS for t in TOOLS), 4, most=28))
def test_tools_leave_them_right(folder: Path, tmp_path: Path, name: str, tool: str) -> None:
    path = built(folder, name)
    out, treated, plain = rewritten(path), tmp_path / "treated", tmp_path / "plain"
    if not applied(tool, path, plain) or run([str(plain)]).output != run([str(path)]).output:
        pytest.skip("the tool does not do for the original")
    assert applied(tool, out, treated)
    assert as_before(plain, treated).count == (2 if name != "stripped" else 1)
    back = undone(treated.read_bytes())
    assert not back.whole
    without = tmp_path / "without"
    without.write_bytes(back.content)
    without.chmod(0o755)
    assert as_before(plain, without).count == 0


@pytest.mark.parametrize("flags", some([(), ("-Wl,--hash-style=sysv",), ("-Wl,-z,noseparate-code", "-s")], 1))
def test_a_library_counts_calls_and_keeps_its_symbols(tmp_path: Path, flags: tuple[str, ...]) -> None:
    source = tmp_path / "used.c"
    source.write_text("static long calls; long used(long a) { calls++; return a * 3 + calls; }")
    program = tmp_path / "program"
    using = "#include <stdio.h>\nlong used(long);\nint main(void) { printf(\"%ld %ld\\n\", used(2), used(3)); }"
    library = tmp_path / "libused.so"
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", library, source, *flags], check=True)
    subprocess.run(["gcc", "-xc", "-", "-xnone", library, "-Wl,-rpath,$ORIGIN", "-o", program],
                   input=using.encode(), check=True)
    original = library.read_bytes()
    told = run([str(program)])
    with Image(str(library)) as image:
        content = counted(image, function_start(image, "used"))
    library.unlink()
    library.write_bytes(content)
    found = run([str(program)], of=library)
    assert (found.output, found.count) == (told.output, 2)
    assert found.output == b"7 11\n" or found.output == b"8 10\n"
    assert undone(content).content == original
    check_rewritten(original, content)


def test_a_file_without_writable_memory_gets_a_segment_for_the_state(tmp_path: Path) -> None:
    source = "static int two(void) { return 2; } void _start(void) { asm(\"syscall\" :: \"a\"(60), \"D\"(two() + 5)); }"
    for flags in (("-static",), ("-static-pie", "-fPIE")):
        program = tmp_path / "bare"
        subprocess.run(["gcc", "-O0", "-nostdlib", "-fno-asynchronous-unwind-tables", "-xc", "-", "-o", program,
                        *flags], input=source.encode(), check=True)
        with Image(str(program)) as image:
            addition = counting(image, image.entry)
            content = written(image, addition)
            assert room(image).own_segment is (flags == ("-static",))
        out = tmp_path / "out"
        out.write_bytes(content)
        out.chmod(0o755)
        assert run([str(out)]).count == 1
        assert run([str(out)]).status == run([str(program)]).status == 7
        assert undone(content).content == program.read_bytes()


def test_linkers_and_readers_find_no_fault(folder: Path) -> None:
    path = built(folder, "pie")
    out = rewritten(path)
    check_rewritten(path.read_bytes(), out.read_bytes())
    need("eu-elflint")
    for file in (path, out):
        assert subprocess.run(["eu-elflint", "--gnu-ld", file], capture_output=True, text=True).stdout == "No errors\n"


def test_the_second_reader_sees_what_is_wrong(folder: Path) -> None:
    path = built(folder, "pie")
    content = bytearray(rewritten(path).read_bytes())
    with Image(str(path)) as image:
        at = next(at for tag, _, at in image.dynamic if tag == 5)  # DT_STRTAB
    content[at + 8] ^= 8
    with pytest.raises(VerifyError, match="the rewritten file has other"):
        check_rewritten(path.read_bytes(), bytes(content))


def test_sections_describe_every_byte_of_the_segment(folder: Path) -> None:
    image = Image.of(rewritten(built(folder, "pie")).read_bytes())
    segment = max((s for s in image.segments if s.kind == PT_LOAD), key=lambda s: s.address)
    inside = sorted((s.offset, s.offset + s.file_size) for s in image.sections
                    if s.file_size and segment.offset <= s.offset < segment.file_end)
    assert inside[0][0] == segment.offset
    assert inside[-1][1] == segment.file_end
    assert all(0 <= b[0] - a[1] < 16 for a, b in pairwise(inside))
    assert [s.name for s in image.sections[-4:]] == [".memopt", ".memopt.eh_frame", ".memopt.bss", ".debug_frame"]


def test_the_build_id_stays_in_the_first_page(folder: Path, tmp_path: Path) -> None:
    library = tmp_path / "lib.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-xc", "-", "-o", library, "-Wl,--build-id=sha1"],
                   input=b"int f(void) { return 1; }", check=True)
    for path in (built(folder, "pie"), library):
        with Image(str(path)) as image:
            new = Image.of(counted(image, function_start(image, "f" if path == library else "work")))
            assert build_id(new) == build_id(image) != ""
        assert next(s for s in new.sections if s.name == ".note.gnu.build-id").offset < 4096


def test_its_place_depends_on_the_limit_of_the_state_only(folder: Path) -> None:
    with Image(str(built(folder, "pie"))) as image:
        place = room(image, STATE_LIMIT)
        assert place.code % 64 == place.state % 64 == 0
        assert room(image).state == place.state
        for size, state_bytes in ((1, 64), (50_000, 5000)):
            addition = Addition(b"\x90" * size, state_bytes, (), (), STATE_LIMIT)
            new = Image.of(written(image, addition))
            assert new.read(new.offset_of(place.code), len(addition.code)) == addition.code
            state = next(s for s in new.sections if s.name == ".memopt.bss")
            assert (state.address, state.size) == (place.state, addition.state_bytes)


@pytest.mark.parametrize(("patches", "message"), [
    ([Patch(16, b"a")], "no code of the file"), ([Patch(1 << 60, b"a")], "no code of the file"),
    ([Patch(-8, b"abcde"), Patch(-4, b"abcde")], "overlap"),
])
def test_patches_lie_apart_in_code(folder: Path, patches: list[Patch], message: str) -> None:
    with Image(str(built(folder, "pie"))) as image:
        placed = tuple(Patch(image.entry + p.address, p.new) if p.address < 0 else p for p in patches)
        with pytest.raises(ElfError, match=message):
            written(image, Addition(b"", 0, placed))


def test_more_state_than_allowed_is_an_error(folder: Path) -> None:
    with Image(str(built(folder, "pie"))) as image, pytest.raises(ElfError, match="are allowed"):
        written(image, Addition(b"", STATE_LIMIT + 1, (), (), STATE_LIMIT))


def test_unknown_bytes_behind_the_table_are_in_the_way(folder: Path) -> None:
    content = bytearray(built(folder, "pie").read_bytes())
    image = Image.of(bytes(content))
    number = next(n for n, s in enumerate(image.sections) if s.name == ".interp")
    content[image.sections_at + 64 * number + 32:image.sections_at + 64 * number + 40] = bytes(8)  # its size
    with pytest.raises(NotRewritable) as refused:
        written(Image.of(bytes(content)), Addition(b"", 0, ()))
    assert refused.value.reason is Reason.FILE_LAYOUT


def test_a_section_that_cannot_move_is_named(folder: Path) -> None:
    content = bytearray(built(folder, "pie").read_bytes())
    image = Image.of(bytes(content))
    number = next(n for n, s in enumerate(image.sections) if s.name == ".note.gnu.property" or s.name == ".interp")
    content[image.sections_at + 64 * number + 4] = 1  # SHT_PROGBITS
    for number, segment in enumerate(image.segments):
        if segment.kind == 3:  # PT_INTERP
            content[image.segments_at + 56 * number + 8] ^= 1
    with pytest.raises(NotRewritable, match="is in the way"):
        written(Image.of(bytes(content)), Addition(b"", 0, ()))
