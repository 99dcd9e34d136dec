from __future__ import annotations

import gzip
import io
import os
import random
import stat
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from memopt.snapshots.file import MANIFEST, PAGES, read, write
from memopt.snapshots.form import PAGE, Pages, SnapshotError, manifest
from tests.support.sample_snapshot import SNAPSHOT

FLIPS = 500


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "nest.snapshot"
    write(str(path), SNAPSHOT)
    return path


def packed(*members: tuple[str, bytes], behind: bytes = b"") -> bytes:
    archive = io.BytesIO()
    with tarfile.open(mode="w", fileobj=archive, format=tarfile.USTAR_FORMAT) as file:
        for name, content in members:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            file.addfile(entry, io.BytesIO(content))
    return gzip.compress(archive.getvalue() + behind)


def test_what_is_written_is_read_again(path: Path) -> None:
    assert read(str(path)) == SNAPSHOT
    before = path.read_bytes()
    assert write(str(path), SNAPSHOT) == len(before)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_only_its_owner_reads_it(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_any_tar_opens_it(path: Path) -> None:
    with tarfile.open(path) as archive:
        assert archive.getnames() == [MANIFEST, PAGES]
        member = archive.extractfile(PAGES)
        assert member is not None
        assert member.read() == b"".join(p.content for p in SNAPSHOT.pages)


def test_a_file_that_ends_too_early_is_refused(path: Path) -> None:
    whole = path.read_bytes()
    for size in (*range(64), *range(64, len(whole), 9), len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(SnapshotError):
            read(str(path))


def test_a_bit_that_flips_is_noticed(path: Path) -> None:
    """Or it changes nothing: some bits of gzip's header and of deflate's last byte say nothing about the content."""
    whole, drawn, told = path.read_bytes(), random.Random(1), 0
    for bit in (drawn.randrange(8 * len(whole)) for _ in range(FLIPS)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        try:
            assert read(str(path)) == SNAPSHOT
        except SnapshotError:
            told += 1
    assert told > FLIPS * 0.9


@pytest.mark.parametrize(("content", "why"), [
    pytest.param(b"", "not complete|no snapshot|damaged", id="empty"),
    pytest.param(b"nothing", "damaged, or no snapshot", id="no archive"),
    pytest.param(gzip.compress(b"x" * 5000), "no snapshot of memopt", id="no tar"),
    pytest.param(packed(("other", b"{}")), "no snapshot of memopt", id="another file"),
    pytest.param(packed((MANIFEST, b"{}")), "not a snapshot", id="an empty manifest"),
    pytest.param(packed((MANIFEST, manifest(SNAPSHOT).encode())), "no snapshot of memopt", id="no pages"),
    pytest.param(packed((MANIFEST, manifest(SNAPSHOT).encode()), (PAGES, b"abc")), "other pages", id="too few pages"),
    pytest.param(packed((MANIFEST, manifest(SNAPSHOT).encode()),
                        (PAGES, b"".join(p.content for p in SNAPSHOT.pages)), behind=b"x"), "behind its pages",
                 id="more behind"),
    pytest.param(gzip.compress(bytes(100) + b"0" * 24 + b"77777777777\0" + bytes(20) + b"0" + bytes(355)),
                 "no snapshot", id="a member of 8 GiB"),
])
def test_another_file_is_refused(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(SnapshotError, match=why):
        read(str(path))


def test_a_large_one_is_read_only_if_that_is_permitted(tmp_path: Path) -> None:
    path = str(tmp_path / "large")
    write(path, replace(SNAPSHOT, pages=(Pages(0x10000, bytes(3 << 20)),)))
    with pytest.raises(SnapshotError, match="3 MiB of pages, more than the limit of 2; --limit 3 permits it"):
        read(path, 2 << 20)
    assert read(path, 3 << 20).size == 3 << 20


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, Path("/dev/zero")):
        with pytest.raises(SnapshotError, match="no regular file"):
            read(str(path))
    with pytest.raises(SnapshotError, match="No such file"):
        read(str(tmp_path / "missing"))


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="cannot write"):
        write(str(tmp_path / "missing" / "file"), SNAPSHOT)
    assert PAGE == 4096
