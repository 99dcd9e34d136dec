"""The way out of a version, executed: every location as it is at the header in iteration H."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from memopt.ir.region import Cell, Lane, LiveIn, MemoryBacked, Register, RegisterCarried, Rejoin, Relation
from tests.support.entering import TRIPS, N, check_kept, flag_words, mirrored, passes
from tests.support.header import FLAGS, WORD, Header, held_by_lane, linear


@pytest.mark.parametrize(("width", "signed", "value"), [
    (8, True, -2), (8, True, 2**40), (4, True, -2), (4, False, 2**32 - 2), (4, True, 2**31 - 1), (4, False, 2**31)])
@pytest.mark.parametrize("base", ["", "rax", "rcx", "rdx", "rbp", "r12", "rsp", "rbx"])
@pytest.mark.parametrize("far", [False, True])
def test_cells(header: Header, width: int, signed: bool, value: int, base: str, far: bool) -> None:
    """A symbol read from memory, and values for iteration H written to memory beside it."""
    displacement = 5 * 2**33 if far and base else 16
    if base in ("", "rsp"):
        if far:
            return
        displacement = 16 if base else header.arena + 16
    raw = (value % 2**(8 * width)).to_bytes(width, "little") + b"\xee" * (16 - width)
    (header.write_stack if base == "rsp" else header.write_arena)(16, raw)
    cell = Cell(base, displacement, width)
    header.install(header.region(
        (N, LiveIn("m", cell, width, signed)), TRIPS, (Relation(linear(-value, m=1), True, ""),),
        (Rejoin(cell, linear(3, m=1, H=2**34 + 1), width),)))
    registers = {"rsi": 10} | ({base: header.arena + 16 - displacement} if base not in ("", "rsp") else {})
    outcome = header.run(registers)
    check_kept(outcome, registers, 0)
    assert outcome.runs == 1
    written = ((value + 3 + 9 * (2**34 + 1)) % 2**(8 * width)).to_bytes(width, "little")
    if base != "rsp":
        assert header.read_arena(16, 16) == written + b"\xee" * (16 - width)
        header.write_arena(16, ((value + 1) % 2**(8 * width)).to_bytes(width, "little"))
        assert header.run(registers).runs == 0


def test_rejoin_is_simultaneous_and_wraps(header: Header) -> None:
    live_ins = (N, LiveIn("x", Register("rax")), LiveIn("y", Register("rcx")), LiveIn("z", Register("rbp")))
    rejoin = (
        Rejoin(Register("rax"), linear(0, y=1)), Rejoin(Register("rcx"), linear(0, x=1)),
        Rejoin(Register("rbp"), linear(-7, z=-1, H=2**40)), Rejoin(Register("rsi"), linear(0, n=1, H=-1)),
        Rejoin(Register("r9"), linear(-1), 4), Rejoin(Register("r10"), linear(2**70 + 5, x=2**63)),
        Rejoin(Register("rdx"), linear(0, z=-1)), Rejoin(Register("r11"), linear(1, x=3, y=-5, n=-1)),
    )
    header.install(header.region(live_ins, TRIPS, (), rejoin))
    x, y, z, h = 2**63 + 11, 0xdead, 2**62 + 9, 9
    registers = {"rsi": 10, "rax": x, "rcx": y, "rbp": z}
    for flags in flag_words():
        outcome = header.run(registers, flags)
        moved = {"rax": y, "rcx": x, "rbp": -7 - z + h * 2**40, "rsi": 1, "r9": 0xffff_ffff, "r10": 5 + 2**63 * x,
                 "rdx": -z, "r11": 1 + 3 * x - 5 * y - 10}
        check_kept(outcome, registers, flags, {n: v & WORD for n, v in moved.items()})
        assert outcome.runs == 1
    outcome = header.run(registers | {"rsi": 1}, FLAGS)
    check_kept(outcome, registers | {"rsi": 1}, FLAGS)


def test_a_register_and_a_cell_together(header: Header) -> None:
    """The cell is addressed by its base's header value; its own new value comes from the live-ins, not from it."""
    header.write_arena(0, struct.pack("<q", 1000))
    live_ins = (N, LiveIn("m", Cell("rbx", 0, 8)), LiveIn("x", Register("rax")))
    rejoin = (Rejoin(Register("rax"), linear(0, m=1, H=1)), Rejoin(Cell("rbx", 0, 8), linear(0, x=1)))
    header.install(header.region(live_ins, TRIPS, (), rejoin))
    outcome = header.run({"rsi": 10, "rbx": header.arena, "rax": 77})
    assert outcome.registers["rax"] == 1009
    assert header.read_arena(0, 8) == struct.pack("<q", 77)


@pytest.mark.parametrize("xcr0", [-1, 0])
@pytest.mark.parametrize(("offset", "width"), [(0, 8), (8, 8), (0, 4), (4, 4), (12, 4)])
def test_a_lane_is_compared_with_its_cell_and_loaded_from_it(offset: int, width: int, xcr0: int) -> None:
    header = Header(xcr0=xcr0)
    lane, held = Lane("xmm13", offset, width), held_by_lane(13, offset, width)
    header.install(mirrored(header, MemoryBacked(lane, width, linear(p=1, H=16), None)))
    registers = {"rsi": 10, "rdi": header.arena}
    header.write_arena(0, held)
    header.write_arena(9 * 16, held)
    assert passes(header, registers, FLAGS)
    header.write_arena(9 * 16, bytes(255 - b for b in held))
    outcome = header.run(registers, FLAGS)
    assert (outcome.runs, outcome.vectors_kept) == (1, False)
    header.write_arena(9 * 16, held)
    for wrong in range(width):
        header.write_arena(0, held[:wrong] + bytes((held[wrong] ^ 0x80,)) + held[wrong + 1:])
        assert not passes(header, registers, FLAGS)


@pytest.mark.parametrize("width", [4, 8])
@pytest.mark.parametrize("name", ["r12", "rcx", "rax", "rbp"])
def test_a_register_is_compared_with_its_cell_and_loaded_from_it(header: Header, name: str, width: int) -> None:
    header.install(mirrored(header, MemoryBacked(Register(name), width, linear(8, p=1, H=16), None)))
    before, after = 0x1234_5678_9ABC_DEF0, 0x0FED_CBA9_8765_4321
    registers = {"rsi": 10, "rdi": header.arena, name: before}
    header.write_arena(8, struct.pack("<Q", before))
    header.write_arena(8 + 9 * 16, struct.pack("<Q", after))
    outcome = header.run(registers, FLAGS)
    expected = after if width == 8 else after & 0xFFFF_FFFF
    check_kept(outcome, registers, FLAGS, {name: expected})
    assert outcome.runs == 1
    header.write_arena(8, struct.pack("<Q", before ^ 1))
    assert not passes(header, registers, FLAGS)
    header.write_arena(8, struct.pack("<Q", before ^ 1 << 63))
    assert header.run(registers, FLAGS).runs == (width == 4)


@pytest.mark.parametrize("width", [4, 8])
def test_what_the_kernel_leaves_in_the_slot_of_a_passed_value_is_taken_over(header: Header, width: int) -> None:
    """The slot is filled from rdi here, so that what is taken over differs from what was there."""
    value = LiveIn("v", Register("rdi"), width)
    held = held_by_lane(13, 8, width)
    for location in (Register("r12"), Lane("xmm13", 8, width)):
        region = header.region((N, value), TRIPS)
        header.install(replace(region, register_carried=(RegisterCarried(location, width, "P0", "v"),)))
        registers = {"rsi": 10, "rdi": int.from_bytes(held, "little"), "r12": WORD}
        outcome = header.run(registers, FLAGS)
        check_kept(outcome, registers, FLAGS, {"r12": registers["rdi"]} if isinstance(location, Register) else {})
        outcome = header.run(registers | {"rdi": 5}, FLAGS)
        assert outcome.vectors_kept is isinstance(location, Register)
        assert outcome.runs == 1
