"""What must not get into a file: addresses of the trained process, code of other files, calls, tables of pointers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from memopt.elf.image import Image
from memopt.ir.code import CompiledRegion, Placement
from memopt.ir.linear import Linear
from memopt.ir.plan import NestPlan
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Cell, Interval, LiveIn, Progression, Region, Rejoin, Trips
from memopt.ir.scop import Scop
from memopt.session.rewriting.movable import check_movable
from memopt.x86.assembler import assemble
from memopt.x86.instructions import Item, instruction
from runtime.target.memory import Mapping
from tests.conftest import Build

BIAS, HEAP = 0x555555554000, 0x555560000000
MAPS = (Mapping(BIAS, BIAS + 0x10000, "r-x", False, 0, "", 1, "/program"),
        Mapping(HEAP, HEAP + 0x20000, "rw-", False, 0, "", 0, "[heap]"))


@pytest.fixture
def image(build: Build) -> Image:
    return Image(str(build("rewritten.c")))


def region(image: Image, bias: int = BIAS) -> Region:
    header = bias + image.entry
    return Region(header, b"\x90" * 5, (), Trips(Linear.symbol("rdi"), 1), (), (), (), Scop((), ()),
                  code=((header, b"\x90" * 16),))


def compiled(of: Region, *items: Item) -> CompiledRegion:
    place = Placement(BIAS + 0x9000, 4096, BIAS + 0xA000, 4096, BIAS + 0xB000, BIAS + 0xC000, 0, in_file=True)
    return CompiledRegion(of, NestPlan(()), place, assemble(items or (instruction("ret"),), place.code).code, 0, 0, "")


def refused(image: Image, of: CompiledRegion, bias: int = BIAS) -> bool:
    try:
        check_movable(of, image, bias, MAPS)
    except Rejected as rejected:
        return rejected.reason is Reason.NOT_MOVABLE
    return False


def test_code_of_the_file_without_addresses(image: Image) -> None:
    assert not refused(image, compiled(region(image), instruction("mov", "rax", 0x3FF0000000000000)))


@pytest.mark.parametrize("number", [HEAP, HEAP + 0x1FFFF, BIAS + 8])
def test_an_address_of_the_process(image: Image, number: int) -> None:
    assert refused(image, compiled(region(image), instruction("mov", "rax", number)))


def test_an_address_of_a_file_at_a_fixed_place(build: Build) -> None:
    image = Image(str(build("rewritten.c", "-no-pie")))
    assert not refused(image, compiled(region(image, 0), instruction("mov", "rax", image.entry)), 0)
    assert refused(image, compiled(region(image, 0), instruction("mov", "rax", HEAP)), 0)


@pytest.mark.parametrize("change", [
    {"code": ((HEAP, b"\x90"),)},
    {"live_ins": (LiveIn("x", Cell("", HEAP, 8)),)},
    {"rejoin": (Rejoin(Cell("", BIAS + 16, 8), Linear()),)},
    {"guards": (Progression(HEAP, HEAP, 8, (), Interval(Linear(), Linear()), ""),)},
])
def test_what_lies_elsewhere_in_each_process(image: Image, change: dict[str, object]) -> None:
    assert refused(image, compiled(replace(region(image), **change)))


def test_a_program_that_tells_nothing_of_its_threads(build: Build, tmp_path: Path) -> None:
    static = Image(str(build("rewritten.c", "-static")))
    assert not refused(static, compiled(region(static, 0)), 0)
    assert refused(static, compiled(replace(region(static, 0), rollback=(8,)), instruction("ret")), 0)
