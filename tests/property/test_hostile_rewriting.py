"""Damaged files for the writer, damaged rewritten files for the record: an answer or one ``ElfError``, and soon."""

from __future__ import annotations

import random
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from memopt.elf.frame_rows import Rule, UnwindRow, UnwindRows, row_at
from memopt.elf.image import ElfError, Image
from memopt.elf.rewriting.record import VersionRecord, record_of, segment_start
from memopt.elf.rewriting.refusals import NotRewritable, check_file, check_scratch, has_shadow_stack, needed
from memopt.elf.rewriting.room import room
from memopt.elf.rewriting.undo import undone
from memopt.elf.rewriting.writer import Addition, written
from tests.conftest import Build
from tests.support.effort import some
from tests.support.rewritten import counted

MOST_KIB = 512 << 10  # a hostile size must not be allocated


def write(content: bytes, path: Path) -> None:
    """Rewrites the damaged file, and undoes it where that was possible."""
    path.write_bytes(content)
    with suppress(ElfError, NotRewritable), Image(str(path)) as image:
        row_at(image, image.entry)
        for look in (has_shadow_stack, needed, lambda image: check_scratch(image, 1 << 20),
                     lambda image: check_file(image, str(path))):
            with suppress(ElfError, NotRewritable):
                look(image)
        new = written(image, an_addition(image))
        back = undone(new)
        assert back.whole
        assert back.content == content


def an_addition(image: Image) -> Addition:
    """Code with a version, its symbol and its unwind rows."""
    code = room(image).code
    version = VersionRecord(header=image.entry % (1 << 40), function="f", guards=(), region="", plan="", isa="sse2",
                            machine="", scratch=0, code=(code, code + 100), entries=0, runs=8, resting=16)
    row = UnwindRow(code, 7, 8, b"", ((16, Rule("offset", -8)),))
    return Addition(b"\xcc" * 100, 256, (), (version,), unwind=(UnwindRows(code, code + 100, (row,)),))


def read(content: bytes) -> None:
    with suppress(ElfError):
        record_of(Image.of(content))
    with suppress(ElfError):
        undone(content)


def damaged(content: bytes, source: random.Random, special: list[int]) -> bytes:
    """A few bytes changed, half of them where counts and offsets are."""
    changed = bytearray(content)
    for _ in range(source.choice((1, 4, 40))):
        at = source.choice(special) if source.random() < 0.7 else source.randrange(4, len(content))
        changed[at] = source.choice((0, 0xFF, changed[at] ^ 1 << source.randrange(8)))
    return bytes(changed)


@pytest.fixture(autouse=True)
def memory() -> Iterator[None]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_KIB


def test_truncation_at_every_header_byte(build: Build, tmp_path: Path) -> None:
    path = build("gemm_ijk.c")
    content = path.read_bytes()
    with Image(str(path)) as image:
        out = counted(image, image.entry)
    start = segment_start(Image.of(out)) or 0
    for length in (*range(64 + 56 * 14), *range(900, len(content), 997)):
        write(content[:length], tmp_path / "cut")
    for length in (*range(0, 64 + 56 * 14, 5), *range(start, len(out), 7)):
        read(out[:length])


@pytest.mark.parametrize("seed", some(range(8), 1))
def test_flipped_bits_of_an_input(build: Build, tmp_path: Path, seed: int) -> None:
    content, source = build("gemm_ijk.c").read_bytes(), random.Random(seed)
    image = Image.of(content)
    dynamic = next(s for s in image.segments if s.kind == 2)
    special = [*range(16, 64 + 56 * 14), *range(image.sections_at, len(content)),
               *range(dynamic.offset, dynamic.file_end)]
    for _ in range(200):
        write(damaged(content, source, special), tmp_path / "flipped")


@pytest.mark.parametrize("seed", some(range(8), 1))
def test_flipped_bits_of_a_rewritten_file(build: Build, seed: int) -> None:
    with Image(str(build("gemm_ijk.c"))) as image:
        out, source = counted(image, image.entry), random.Random(seed)
    start = segment_start(Image.of(out)) or 0
    special = [*range(16, 64 + 56 * 15), *range(start, start + 64), *range(start + 64, len(out))]
    for _ in range(200):
        read(damaged(out, source, special))
