from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from memopt.snapshots.form import (
    PAGE,
    REGISTERS,
    TOP,
    MappedRange,
    Nest,
    Pages,
    Snapshot,
    SnapshotError,
    Symbols,
    VectorState,
    manifest,
    page_sizes,
    parsed,
)
from tests.support.sample_snapshot import SNAPSHOT

Change = Callable[[dict[str, Any]], object]


def again(snapshot: Snapshot) -> Snapshot:
    found, size = page_sizes(manifest(snapshot).encode())
    content = b"".join(p.content for p in snapshot.pages)
    assert size == len(content)
    return parsed(found, content)


def test_what_is_written_is_read_again() -> None:
    assert again(SNAPSHOT) == SNAPSHOT
    bare = Snapshot(Nest("", "", 0x401000, 0, (0x401000, 0x402000), None, (), 0), dict.fromkeys(REGISTERS, 0),
                    VectorState(), (), (Pages(0x401000, bytes(PAGE)),))
    assert again(bare) == bare


def test_bytes_are_read_as_far_as_there_are_pages() -> None:
    start = SNAPSHOT.pages[0].start
    assert SNAPSHOT.read_some(start + 2 * PAGE - 2, 10) == SNAPSHOT.pages[0].content[-2:]
    assert SNAPSHOT.read_some(start + 3, 4) == SNAPSHOT.pages[0].content[3:7]
    assert SNAPSHOT.read_some(0, 4) == SNAPSHOT.read_some(TOP, 1) == b""
    neighbours = Snapshot(SNAPSHOT.nest, SNAPSHOT.registers, SNAPSHOT.state, (),
                          (Pages(PAGE * 16, b"a" * PAGE), Pages(PAGE * 17, b"b" * PAGE)))
    assert neighbours.read_some(PAGE * 17 - 1, 2) == b"ab"


def test_the_manifest_can_be_read_by_people() -> None:
    lines = manifest(SNAPSHOT).splitlines()
    assert '  "mxcsr": "0x1fa0"' not in lines
    assert ' "mxcsr": "0x1fa0",' in lines
    assert '  ["0x401000", "0x403000", "r-xp", "prog"],' in lines


@pytest.mark.parametrize("change", [
    pytest.param(lambda m: m["registers"].pop("rip"), id="a register is missing"),
    pytest.param(lambda m: m["registers"].update(rax="-0x1"), id="a negative register"),
    pytest.param(lambda m: m["registers"].update(rax="0x1" + 16 * "0"), id="a register of 65 bits"),
    pytest.param(lambda m: m["registers"].update(rax=7), id="a register that is no text"),
    pytest.param(lambda m: m.update(x87="00"), id="a short x87 state"),
    pytest.param(lambda m: m["vectors"].update(zmm32="00" * 64), id="a register that does not exist"),
    pytest.param(lambda m: m["vectors"].update(zmm0="00" * 63), id="a short vector"),
    pytest.param(lambda m: m.update(mxcsr="0x10000"), id="MXCSR of 17 bits"),
    pytest.param(lambda m: m["nest"].update(header=hex(TOP)), id="a header that cannot be mapped"),
    pytest.param(lambda m: m["nest"].update(text=["0x2000", "0x1000"]), id="an interval upside down"),
    pytest.param(lambda m: m["nest"].update(trips=-1), id="negative iterations"),
    pytest.param(lambda m: m["nest"].update(trips=True), id="true iterations"),
    pytest.param(lambda m: m.update(nest=[]), id="a list in place of an object"),
    pytest.param(lambda m: m["ranges"].append(["0x1000", "0x2000", "rwzp", ""]), id="an access that does not exist"),
    pytest.param(lambda m: m["ranges"].append(["0x1000"]), id="a range without an end"),
    pytest.param(lambda m: m["pages"].append(["0x1000", PAGE]), id="pages below the first address"),
    pytest.param(lambda m: m["pages"].append(m["pages"][0]), id="pages twice"),
    pytest.param(lambda m: m["pages"].append([hex(TOP - PAGE), 2 * PAGE]), id="pages beyond the last address"),
    pytest.param(lambda m: m["pages"].append(["0x7f0000000001", PAGE]), id="no whole page"),
    pytest.param(lambda m: m["pages"].append(["0x7f0000000000", 0]), id="an empty page"),
    pytest.param(lambda m: m["pages"].append(["0x7f0000000000", "4096"]), id="a size that is no number"),
    pytest.param(lambda m: m.update(why="a" * 5000), id="a long text"),
    pytest.param(lambda m: m["symbols"].update(slots={hex(n): "f" for n in range(5000)}), id="many names"),
    pytest.param(lambda m: m.pop("symbols"), id="no symbols"),
])
def test_a_manifest_that_is_wrong_is_refused(change: Change) -> None:
    found = json.loads(manifest(SNAPSHOT))
    change(found)
    with pytest.raises(SnapshotError):
        parsed(page_sizes(json.dumps(found).encode())[0], b"".join(p.content for p in SNAPSHOT.pages))


@pytest.mark.parametrize("text", [b"", b"[]", b"\xff", b"{}", b"[" * 100_000, b"1" * 10_000, b'{"format": 1}'])
def test_what_is_no_manifest_is_refused(text: bytes) -> None:
    with pytest.raises(SnapshotError):
        page_sizes(text)


def test_another_version_is_named() -> None:
    found = json.loads(manifest(SNAPSHOT)) | {"version": 2}
    with pytest.raises(SnapshotError, match="version 2 of the form, and this memopt reads 1"):
        page_sizes(json.dumps(found).encode())


def test_values_have_their_defaults() -> None:
    assert MappedRange(0, PAGE, "r--", False, "").name == ""
    assert Symbols() == Symbols({}, {}, ())
