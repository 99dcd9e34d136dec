from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest

from memopt.elf.image import ElfError, Image
from memopt.elf.rewriting.record import (
    HEADER_SIZE,
    Change,
    changes_of,
    header_of,
    printable,
    record_of,
    segment_start,
    text_of,
)
from memopt.elf.rewriting.writer import written
from memopt.ir.reasons import VerifyError
from tests.conftest import Build
from tests.support.rewritten import counting


def rewritten(build: Build) -> bytes:
    with Image(str(build("gemm_ijk.c"))) as image:
        return written(image, counting(image, image.entry))


def with_text(content: bytes, text: bytes) -> bytes:
    """The file with ``text`` for its record, and with the right hash of it; ``text`` is not longer than the old one."""
    start = segment_start(Image.of(content)) or 0
    at = start + _offset(content, start)
    changed = bytearray(content)
    changed[start:start + HEADER_SIZE] = header_of(text, at - start)
    changed[at:at + len(text)] = text
    return bytes(changed)


def _offset(content: bytes, start: int) -> int:
    return int.from_bytes(content[start + 16:start + 24], "little")


def _told(content: bytes) -> Any:
    start = segment_start(Image.of(content)) or 0
    length = int.from_bytes(content[start + 12:start + 16], "little")
    at = start + _offset(content, start)
    return json.loads(content[at:at + length])


def test_what_is_written_is_read_back(build: Build) -> None:
    with Image(str(build("gemm_ijk.c"))) as image:
        addition = counting(image, image.entry)
        full = replace(addition.versions[0], guards=("rax == 3", "rdi < 2^20"), region="a\nb", plan="tile 8",
                       machine="a machine", scratch=4096, measured=(("gain", 2.5), ("runs", 12.0)))
        content = written(image, replace(addition, versions=(full, replace(full, function="worse\x1b[31m"))))
        assert content == written(image, replace(addition, versions=(full, replace(full, function="worse\x1b[31m"))))
        record = record_of(Image.of(content))
        assert record is not None
        assert record.versions == (full, replace(full, function="worse?[31m"))
        assert record.length == image.size
        assert record.sha256 == hashlib.sha256(image.read(0, image.size)).hexdigest()
        assert record.state[1] == addition.state_bytes
        assert [(p.address, p.new) for p in record.patches] == [(p.address, p.new) for p in addition.patches]


def test_it_is_found_without_section_headers(build: Build) -> None:
    content = bytearray(rewritten(build))
    content[40:48], content[60:62] = bytes(8), bytes(2)  # e_shoff, e_shnum
    assert record_of(Image.of(bytes(content))) == record_of(Image.of(rewritten(build)))


def test_a_file_that_was_not_rewritten_has_none(build: Build) -> None:
    with Image(str(build("gemm_ijk.c"))) as image:
        assert record_of(image) is None


@pytest.mark.parametrize(("key", "value"), [
    ("length", -1), ("length", "7"), ("length", 1 << 60), ("sha256", "12"), ("sha256", "g" * 64), ("state", [1]),
    ("state", [0, 1 << 40]), ("changes", {}), ("changes", [{"offset": 8, "original": "0g"}]),
    ("changes", [{"offset": 8, "original": "00"}, {"offset": 8, "original": "00"}]),
    ("changes", [{"offset": 1 << 40, "original": "00"}]), ("patches", [{"address": 1, "original": "", "new": "00"}]),
    ("patches", None), ("versions", [{}]), ("versions", [7]), ("memopt", "\x1b[31m"), ("memopt", True),
])
def test_odd_records_are_damaged_ones(build: Build, key: str, value: object) -> None:
    content = rewritten(build)
    told = _told(content)
    told[key] = value
    text = json.dumps(told, separators=(",", ":")).encode()
    with pytest.raises(ElfError, match="damaged"):
        record_of(Image.of(with_text(content, text)))


@pytest.mark.parametrize("text", [b"", b"[", b"[" * 5000, b"\xff\xfe", b"[1]", b"7", b'{"length": NaN}', b"1" * 5000],
                         ids=range(8))
def test_what_is_no_record_is_a_damaged_one(build: Build, text: bytes) -> None:
    with pytest.raises(ElfError, match="damaged"):
        record_of(Image.of(with_text(rewritten(build), text[:1500])))


def test_counters_lie_in_the_state(build: Build) -> None:
    content = rewritten(build)
    told = _told(content)
    told["versions"][0]["runs"] = told["state"][1] - 7
    with pytest.raises(ElfError, match="damaged"):
        record_of(Image.of(with_text(content, json.dumps(told, separators=(",", ":")).encode())))


def test_its_text_is_guarded_by_a_hash_and_its_form_by_a_version(build: Build) -> None:
    content = rewritten(build)
    start = segment_start(Image.of(content)) or 0
    at = start + _offset(content, start)
    for place in (at + 5, start + 12, start + 17, start + 40):
        changed = bytearray(content)
        changed[place] ^= 1
        with pytest.raises(ElfError):
            record_of(Image.of(bytes(changed)))
    changed = bytearray(content)
    changed[start + 8] = 9
    with pytest.raises(ElfError, match="another version of memopt"):
        record_of(Image.of(bytes(changed)))


def test_places_that_touch_become_one_change(build: Build) -> None:
    with Image(str(build("gemm_ijk.c"))) as image:
        assert changes_of(image, [(8, 2), (0, 4), (4, 1), (9, 3)]) == (
            Change(0, image.read(0, 5)), Change(8, image.read(8, 4)))


def test_the_text_is_canonical(build: Build) -> None:
    record = record_of(Image.of(rewritten(build)))
    assert record is not None
    assert text_of(record) == json.dumps(json.loads(text_of(record)), sort_keys=True, indent=0).encode()
    assert b"/" not in text_of(record)
    assert printable("dgemm\n") == "dgemm?"


@pytest.mark.parametrize("odd", [{"guards": ("a\tb",)}, {"plan": "\x1b"}, {"scratch": -1}, {"runs": 1 << 20},
                                 {"measured": (("gain", float("inf")),)}, {"code": (8, 4)}], ids=str)
def test_what_could_not_be_read_back_is_not_written(build: Build, odd: dict[str, Any]) -> None:
    with Image(str(build("gemm_ijk.c"))) as image:
        addition = counting(image, image.entry)
        with pytest.raises(VerifyError):
            written(image, replace(addition, versions=(replace(addition.versions[0], **odd),)))
