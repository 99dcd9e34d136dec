"""Landing pads of compiled functions, and of tables that are damaged."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from memopt.elf.image import Image
from memopt.elf.landing import landing_pads
from memopt.elf.symbols import Function, Symbols
from tests.conftest import Build

_TABLES = (".gcc_except_table", ".eh_frame", ".eh_frame_hdr")


def functions(path: Path) -> dict[str, Function]:
    with Image(str(path)) as image:
        return {f.shown.partition("(")[0]: f for f in Symbols(image).everything if ".cold" not in f.name}


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_calls_in_a_try_block_lead_to_what_catches(build: Build, compiler: str) -> None:
    program = build("caught_in_loops.cpp", compiler=compiler, level="-O1")
    known = functions(program)
    with Image(str(program)) as image:
        found = {name: landing_pads(image, function.start) for name, function in known.items()}
    for name in ("caught", "around"):
        assert any(pad.start in range(known[name].start, known[name].end) for pad in found[name])
        assert all(call in range(known[name].start, known[name].end) for pad in found[name] for call in pad.calls)
    assert not found["split"]
    assert not found["checked"]


@pytest.mark.parametrize("seed", range(20))
def test_damaged_tables_have_none_or_others(build: Build, tmp_path: Path, seed: int) -> None:
    program, chance = build("caught_in_loops.cpp", compiler="g++", level="-O1"), random.Random(seed)
    data, known = bytearray(program.read_bytes()), functions(program)
    with Image(str(program)) as image:
        tables = [s for s in image.sections if s.name in _TABLES]
    for table in tables:
        for _ in range(chance.randrange(1, 1 + table.size // 8)):
            data[table.offset + chance.randrange(table.size)] = chance.randrange(256)
    damaged = tmp_path / "damaged"
    damaged.write_bytes(data)
    with Image(str(damaged)) as image:
        assert all(isinstance(landing_pads(image, function.start), tuple) for function in known.values())
