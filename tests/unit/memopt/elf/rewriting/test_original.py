from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from memopt.elf.image import PF_X, PT_LOAD, Image
from memopt.elf.rewriting.original import original_of
from memopt.elf.rewriting.record import record_of
from memopt.elf.symbols import Symbols
from memopt.session.replacing.site import find_site, site_in_file
from runtime.target.memory import Mapping, mappings
from tests.conftest import Build
from tests.support.rewritten import counted, function_start

BIAS = 0x5555_0000_0000


def mapping_of(path: Path, last: bool) -> Mapping:
    """The first or the last executable segment of the file, as it might be mapped."""
    with Image(str(path)) as image:
        segment = [s for s in image.segments if s.kind == PT_LOAD and s.flags & PF_X][-1 if last else 0]
    start = BIAS + segment.address & -4096
    return Mapping(start, start + (segment.file_size + 4095) & -4096, "r-x", False, segment.offset & -4096, "00:00", 7,
                   str(path))


@pytest.fixture
def paths(build: Build, tmp_path: Path) -> tuple[Path, Path, int]:
    """A program, the program with its innermost loop counted, and the live address of that loop."""
    path = build("gemm_ijk.c", "-g")
    with Image(str(path)) as image:
        function = next(f for f in Symbols(image).functions if f.name == "dgemm")
        mapping = mapping_of(path, last=False)
        sites = (site_in_file(mapping, BIAS + address) for address in range(function.start, function.end))
        header = max((s.loops for s in sites if s is not None), key=len)[-1].header
        content = counted(image, header - BIAS)
    out = tmp_path / "out"
    out.write_bytes(content)
    return path, out, header


def test_code_is_read_as_it_was(paths: tuple[Path, Path, int]) -> None:
    path, out, header = paths
    with Image(str(path)) as image, Image(str(out)) as new:
        original = original_of(new, BIAS)
        assert original is not None
        assert original.headers == {header}
        at = image.offset_of(header - BIAS)
        for start in range(header - 12, header + 7):
            for size in (1, 3, 16):
                skip = start - header
                code = new.read(at + skip, size)
                assert original.restored(start, code) == image.read(at + skip, size)
        assert new.read(at, 5) != image.read(at, 5)
        assert original_of(image) is None


def test_a_damaged_record_counts_as_none(paths: tuple[Path, Path, int]) -> None:
    content = bytearray(paths[1].read_bytes())
    image = Image.of(bytes(content))
    segment = max((s for s in image.segments if s.kind == PT_LOAD), key=lambda s: s.address)
    content[segment.offset + 40] ^= 1
    assert original_of(Image.of(bytes(content))) is None


def test_the_loop_of_a_version_is_settled_and_loops_beside_it_are_not(paths: tuple[Path, Path, int]) -> None:
    path, out, header = paths
    before, after = (site_in_file(mapping_of(p, last=False), header) for p in (path, out))
    assert before is not None
    assert after is not None
    assert {start: block.code for start, block in after.graph.blocks.items()} == {
        start: block.code for start, block in before.graph.blocks.items()}
    assert header in {loop.header for loop in before.loops}
    assert after.loops == ()


def test_the_code_of_a_version_belongs_to_its_function_and_has_no_candidates(paths: tuple[Path, Path, int]) -> None:
    with Image(str(paths[1])) as image:
        record = record_of(image)
        assert record is not None
        code = record.versions[0].code
        original = original_of(image, BIAS)
        assert original is not None
        assert original.version_at(code[0] + BIAS) == record.versions[0]
        assert original.version_at(code[1] + BIAS) is None
    with Image(str(paths[1])) as image:
        known = Symbols(image).function_at(code[0] + 3)
    assert known is not None
    assert (known.start, known.end, known.name) == (*code, "memopt:dgemm")
    found = site_in_file(mapping_of(paths[1], last=True), code[0] + BIAS)
    assert found is not None
    assert (found.function, found.loops) == ("dgemm", ())


def test_a_running_process_is_seen_as_its_file_was(build: Build, tmp_path: Path) -> None:
    program, out = tmp_path / "waits", tmp_path / "out"
    source = ("#include <unistd.h>\nlong sum; int main(int n, char **v) { char c; for (long i = 0; i < n * 9; i++)"
              " sum += i * *v[0]; return write(1, \"x\", 1) + read(0, &c, 1) > 5; }")
    subprocess.run(["gcc", "-O1", "-xc", "-", "-o", program], input=source.encode(), check=True)
    mapping = mapping_of(program, last=False)
    with Image(str(program)) as image:
        start = function_start(image, "main")
        sites = (site_in_file(mapping, BIAS + start + at) for at in range(80))
        header = next(s.loops[0].header for s in sites if s is not None and s.loops) - BIAS
        out.write_bytes(counted(image, header))
    out.chmod(0o755)
    for path, count in ((program, 1), (out, 0)):
        running = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdout.read(1)
        place = next(m for m in mappings(running.pid) if m.executable and m.path == str(path))
        with Image(str(path)) as image:
            found = find_site(running.pid, image.load_bias(place.start, place.offset) + header)
        running.communicate()
        assert len(found.loops) == count
        assert found.function == "main"
