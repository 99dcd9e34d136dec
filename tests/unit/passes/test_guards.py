"""The way into a version and out of it, executed: what the program can see, and every guard both ways."""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping
from dataclasses import replace

import pytest

from memopt.ir.plan import Date, Isa, Leaf, LoopPlan, NestPlan
from memopt.ir.region import (
    Cell,
    Disjoint,
    Guard,
    Interval,
    Lane,
    LiveIn,
    Mirror,
    Passed,
    Region,
    Register,
    Rejoin,
    Relation,
    Trips,
)
from memopt.x86.instructions import GENERAL
from tests.support import nests
from tests.support.header import FLAGS, LIMIT, MXCSR, PLAN, VALUES, WORD, Header, Outcome, linear

N = LiveIn("n", Register("rsi"))
TRIPS = Trips(linear(n=1), 1)
INEXACT = 0x20


@pytest.fixture(scope="module")
def header() -> Header:
    return Header()


@pytest.fixture(autouse=True)
def _fresh(header: Header) -> None:
    header.limit, header.busy = LIMIT, 0


def passes(header: Header, registers: Mapping[str, int], flags: int = 0) -> bool:
    """Run once; everything but the vote must be as the contract says, with no rejoin."""
    before = dict(registers)
    outcome = header.run(registers, flags)
    check_kept(outcome, before, flags)
    assert outcome.mxcsr == MXCSR | (INEXACT if outcome.runs else 0)
    assert outcome.statistics[:2] == (1, outcome.runs)
    assert outcome.statistics[2] == (outcome.limit if outcome.runs else 0)
    assert header.frame_busy() == 0
    return outcome.runs == 1


def check_kept(outcome: Outcome, registers: Mapping[str, int], flags: int,
               moved: Mapping[str, int] | None = None) -> None:
    expected = {name: 0x1111_2222_3333_0000 + number for number, name in enumerate(GENERAL)} | {"r15": 0}
    expected |= {name: value & WORD for name, value in registers.items()} | dict(moved or {})
    found = dict(outcome.registers)
    expected["rsp"] = found["rsp"]
    assert {n: hex(v) for n, v in found.items()} == {n: hex(v) for n, v in expected.items()}
    assert outcome.flags == flags
    assert outcome.vectors_kept
    assert outcome.red_zone_kept
    assert outcome.displaced_runs == 1


def flag_words() -> list[int]:
    bits = [1 << n for n in range(12) if FLAGS >> n & 1]
    return [sum(b for i, b in enumerate(bits) if word >> i & 1) for word in range(1 << len(bits))]


@pytest.mark.parametrize("trips", [1, 10])
def test_every_register_and_flag_is_kept(header: Header, trips: int) -> None:
    header.install(header.region((N,), TRIPS))
    rng = random.Random(trips)
    for flags in flag_words():
        registers = {name: rng.choice((0, rng.getrandbits(64))) for name in VALUES} | {"rsi": trips}
        assert passes(header, registers, flags) is (trips == 10)


@pytest.mark.parametrize("mxcsr", [MXCSR, MXCSR | 0x3f, MXCSR | 0x6000, MXCSR | 0x8040 | 2])
def test_modes_stay_and_exception_flags_add_up(header: Header, mxcsr: int) -> None:
    header.install(header.region((N,), TRIPS))
    outcome = header.run({"rsi": 10}, mxcsr=mxcsr)
    assert (outcome.runs, outcome.mxcsr) == (1, mxcsr | INEXACT)
    outcome = header.run({"rsi": 1}, mxcsr=mxcsr)
    assert (outcome.runs, outcome.mxcsr) == (0, mxcsr)


@pytest.mark.parametrize("bit", range(7, 13))
def test_an_unmasked_exception_keeps_the_version_out(header: Header, bit: int) -> None:
    header.install(header.region((N,), TRIPS))
    outcome = header.run({"rsi": 10}, mxcsr=MXCSR & ~(1 << bit))
    assert (outcome.runs, outcome.mxcsr) == (0, MXCSR & ~(1 << bit))
    check_kept(outcome, {"rsi": 10}, 0)


def test_without_xsave_the_sse_state_is_kept() -> None:
    header = Header(xcr0=0)
    header.install(header.region((N,), TRIPS))
    assert passes(header, {"rsi": 10}, FLAGS)
    assert not passes(header, {"rsi": 1}, FLAGS)


@pytest.mark.parametrize("rcx", [0, 1, WORD])
@pytest.mark.parametrize("busy", [1, 0x1234_0000_0000])
def test_a_busy_frame_is_left_alone(header: Header, busy: int, rcx: int) -> None:
    header.install(header.region((N,), TRIPS))
    header.busy = busy
    for flags in flag_words():
        outcome = header.run({"rsi": 10, "rcx": rcx}, flags)
        check_kept(outcome, {"rsi": 10, "rcx": rcx}, flags)
        assert (outcome.runs, outcome.statistics, header.frame_busy()) == (0, (0, 0, 0, 0), busy)
    header.busy = 0
    assert passes(header, {"rsi": 10, "rcx": rcx})


@pytest.mark.parametrize(("numerator", "divisor", "trips"), [
    (0, 1, None), (1, 1, None), (2, 1, 2), (3, 1, 3), (-5, 1, None), (2**63 - 1, 1, 2**63 - 1),
    (16, 8, 2), (17, 8, None), (24, 8, 3), (-16, 8, None), (8, 8, None), (-16, -8, 2), (16, -8, None),
    (-2**63, -1, None), (-2**63, -2, None), (2**40, 2**31, 2**9), (2**40 + 2**30, 2**31, None), (2**40, 2**32, 2**8),
    (2**40 + 1, 2**32, None), (21, 7, 3), (20, 7, None), (22, 7, None), (-21, -7, 3), (6, 2**62, None),
    (-2**63, 2**63, None), (0, 2**63, None), (3 * 2**33 * 5, 2**33 * 5, 3), (3 * 2**33 * 5 + 1, 2**33 * 5, None),
    (-2**63, 2**64, None),
])
def test_trips(header: Header, numerator: int, divisor: int, trips: int | None) -> None:
    header.install(header.region((N,), Trips(linear(n=1), divisor)))
    outcome = header.run({"rsi": numerator})
    check_kept(outcome, {"rsi": numerator}, 0)
    found = (outcome.trips, outcome.limit) if outcome.runs else None
    assert found == (None if trips is None else (trips, trips - 1))


@pytest.mark.parametrize(("limit", "expected"), [(LIMIT, 9), (10, 9), (9, 9), (8, 8), (1, 1), (0, None), (-1, None)])
def test_limit(header: Header, limit: int, expected: int | None) -> None:
    header.install(header.region((N,), TRIPS))
    header.limit = limit
    outcome = header.run({"rsi": 10})
    assert (outcome.limit if outcome.runs else None) == expected
    assert outcome.statistics[2] == (expected or 0)


@pytest.mark.parametrize(("most", "expected"), [(1, 1), (8, 8), (9, 9), (10, 9), (2**40, 9)])
def test_a_plan_may_limit_the_iterations_of_one_run(most: int, expected: int) -> None:
    header = Header(plan=replace(PLAN, most_iterations=most))
    header.install(header.region((N,), TRIPS))
    for limit in (LIMIT, 3):
        header.limit = limit
        outcome = header.run({"rsi": 10})
        assert outcome.limit == min(limit, expected)
        assert outcome.statistics[2] == min(limit, expected)


@pytest.mark.parametrize("value", [0, 2**40, 2**40 + 1, -2**40, -2**40 - 1, 2**63 - 1, -2**63])
def test_loop_bounds_out_of_all_proportion_keep_the_version_out(value: int) -> None:
    nest = nests.region("for i < R\n  for j < m - 2*i\n    A[i, j] = mul(A[i, j], A[i, j])", {"A": (9, 9)})
    plan = LoopPlan(Isa.SSE2, nest.scop.statements, (Leaf("S0", (Date(linear(i=1)),), vector="j"),))
    header = Header(plan=NestPlan((plan,)))
    header.install(header.region((N, LiveIn("m", Register("rdi"))), TRIPS))
    assert header.run({"rsi": 10, "rdi": value}).runs == (abs(value) <= 2**40)
    assert header.run({"rsi": 2**40 + 1, "rdi": 1}).runs == 0


def with_guard(header: Header, *guards: Guard) -> Region:
    symbols = (N, LiveIn("x", Register("rax")), LiveIn("y", Register("rdx")), LiveIn("z", Register("rbp")))
    return header.region(symbols, TRIPS, guards)


@pytest.mark.parametrize(("x", "passing"), [(41, False), (42, True), (43, False), (42 - 2**63, False)])
def test_equality(header: Header, x: int, passing: bool) -> None:
    header.install(with_guard(header, Relation(linear(-42, x=1), True, "")))
    assert passes(header, {"rsi": 10, "rax": x}) is passing


@pytest.mark.parametrize(("x", "passing"), [(41, False), (42, True), (43, True), (2**63 - 1, True), (-2**63, False)])
def test_at_least(header: Header, x: int, passing: bool) -> None:
    header.install(with_guard(header, Relation(linear(-42, x=1), False, "")))
    assert passes(header, {"rsi": 10, "rax": x}) is passing


def test_a_guard_may_use_the_trips(header: Header) -> None:
    header.install(with_guard(header, Relation(linear(0, x=1, R=-8), True, "")))
    assert passes(header, {"rsi": 10, "rax": 80})
    assert not passes(header, {"rsi": 10, "rax": 72})


@pytest.mark.parametrize("xcr0", [-1, 0])
@pytest.mark.parametrize("width", [4, 8])
@pytest.mark.parametrize("offset", [0, 4, 8, 12, 16, 20, 24])
def test_a_guard_may_use_part_of_a_vector_register(offset: int, width: int, xcr0: int) -> None:
    header = Header(xcr0=xcr0)
    if offset + width > 16 and not header.xcr0 & 4:
        pytest.skip("no upper halves")
    there = range(64 * 13 + offset, 64 * 13 + offset + width)
    contents = int.from_bytes(bytes((7 * n + n // 251) & 255 for n in there), "little", signed=True)
    for wrong in (0, 1, -1 << 8 * (width - 1)):
        lane = LiveIn("lane", Lane("xmm13", offset, width), width)
        header.install(header.region((N, lane), TRIPS, (Relation(linear(-contents - wrong, lane=1), True, ""),)))
        assert passes(header, {"rsi": 10}, FLAGS) is (wrong == 0)


def test_all_guards_must_pass(header: Header) -> None:
    header.install(with_guard(header, *(Relation(linear(-1, **{s: 1}), True, "") for s in "xyz")))
    assert passes(header, {"rsi": 10, "rax": 1, "rdx": 1, "rbp": 1})
    for name in ("rax", "rdx", "rbp"):
        assert not passes(header, {"rsi": 10, "rax": 1, "rdx": 1, "rbp": 1} | {name: 2})


@pytest.mark.parametrize(("a", "b", "x", "y"), [
    (4, 1, 2**62, 1), (4, 1, -2**62, -1), (4, 1, 2**63 - 1, 2**63 - 1), (4, 1, -2**63, 0), (4, 1, 2**61, -2**62),
    (1, 1, 2**63 - 1, 1), (1, 1, -2**63, -1), (1, -1, -2**63, 1), (1, -1, 1, -2**63), (-1, 3, -2**63, 0),
    (3, 3, 2**61, 2**61), (3, 5, -2**61, -2**60), (2**40, 1, 2**23, 0), (2**40, 2**41, 2**22, 2**21),
])
@pytest.mark.parametrize("equal", [True, False])
def test_overflow_is_a_failure(header: Header, a: int, b: int, x: int, y: int, equal: bool) -> None:
    """a * x + b * y wraps, at the latest in the sum: the wrapped value must not pass for the true one."""
    wrapped = (a * x + b * y + 2**63) % 2**64 - 2**63
    constant = -wrapped if equal and wrapped != -2**63 else 0
    header.install(with_guard(header, Relation(linear(constant, x=a, y=b), equal, "")))
    assert passes(header, {"rsi": 10, "rax": 0, "rdx": 0}) is (constant == 0)
    assert not passes(header, {"rsi": 10, "rax": x, "rdx": y})


@pytest.mark.parametrize("number", [2**31 - 1, 2**31, -2**31, -2**31 - 1, 2**32 - 1, 2**32, 2**40])
def test_numbers_around_32_bits(header: Header, number: int) -> None:
    header.install(with_guard(header, Relation(linear(-number, x=1), True, ""), Relation(
        linear(3 * number, y=number), True, ""), Relation(linear(0, z=number, x=3), True, "")))
    assert passes(header, {"rsi": 10, "rax": number, "rdx": -3, "rbp": -3})
    assert not passes(header, {"rsi": 10, "rax": number + 1, "rdx": -3, "rbp": -3})
    assert not passes(header, {"rsi": 10, "rax": number, "rdx": -4, "rbp": -3})
    assert not passes(header, {"rsi": 10, "rax": number, "rdx": -3, "rbp": -2})


def test_numbers_beyond_64_bits_never_pass(header: Header) -> None:
    header.install(with_guard(header, Relation(linear(2**63, x=1), False, "")))
    assert not passes(header, {"rsi": 10, "rax": 5})
    header.install(with_guard(header, Relation(linear(0, x=2**64), True, "")))
    assert not passes(header, {"rsi": 10, "rax": 0})


@pytest.mark.parametrize(("first", "second", "passing"), [
    ((0, 64), (64, 128), True), ((0, 65), (64, 128), False), ((64, 128), (0, 64), True), ((63, 128), (0, 64), False),
    ((0, 64), (0, 64), False), ((0, 64), (8, 16), False), ((8, 16), (0, 64), False),
    ((0, 64), (2**40, 2**40 + 8), True),
    ((2**63 - 8, 2**63 - 4), (0, 8), True),
])
def test_disjoint(header: Header, first: tuple[int, int], second: tuple[int, int], passing: bool) -> None:
    intervals = (Interval(linear(x=1), linear(first[1] - first[0], x=1)),
                 Interval(linear(y=1), linear(second[1] - second[0], y=1)))
    header.install(with_guard(header, Disjoint(*intervals, "")))
    assert passes(header, {"rsi": 10, "rax": first[0], "rdx": second[0]}) is passing


def test_an_interval_that_wraps_is_a_failure(header: Header) -> None:
    intervals = Interval(linear(x=1), linear(64, x=1)), Interval(linear(y=1), linear(64, y=1))
    header.install(with_guard(header, Disjoint(*intervals, "")))
    assert not passes(header, {"rsi": 10, "rax": 2**63 - 10, "rdx": 0})
    assert not passes(header, {"rsi": 10, "rax": 0, "rdx": 2**63 - 10})


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


def test_registers_of_four_bytes(header: Header) -> None:
    live_ins = (N, LiveIn("s", Register("rax"), 4, True), LiveIn("u", Register("rdi"), 4, False))
    guards = (Relation(linear(1, s=1), True, ""), Relation(linear(1 - 2**32, u=1), True, ""))
    header.install(header.region(live_ins, TRIPS, guards))
    assert passes(header, {"rsi": 10, "rax": 0x1234_5678_ffff_ffff, "rdi": 0x9876_5432_ffff_ffff})
    assert not passes(header, {"rsi": 10, "rax": 0xffff_ffff, "rdi": 0xffff_fffe})
    assert not passes(header, {"rsi": 10, "rax": 0xffff_fffe, "rdi": 0xffff_ffff})


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


def test_statistics(header: Header) -> None:
    header.install(header.region((N,), TRIPS))
    outcome = header.run({"rsi": 10})
    entries, runs, iterations, cycles = outcome.statistics
    assert (entries, runs, iterations) == (1, 1, 9)
    assert 0 < cycles < 10**9
    assert header.run({"rsi": 1}).statistics == (1, 0, 0, 0)


def test_random_guards_against_exact_arithmetic(header: Header) -> None:
    """No guard passes that is false over the integers; small ones pass exactly when true."""
    rng = random.Random(3)
    seen = {False: 0, True: 0}
    for _ in range(60):
        big = rng.random() < 0.5
        scale = 2**62 if big else 50
        relation = Relation(linear(rng.randrange(-scale, scale), **{s: rng.choice((0, 1, -1, 2, rng.randrange(
            -2**40, 2**40) if big else 3)) for s in "xyz"}), rng.random() < 0.3, "")
        header.install(with_guard(header, relation))
        for _ in range(20):
            values = {s: rng.choice((0, 1, -1, rng.randrange(-scale, scale))) for s in "xyz"}
            exact = relation.expression.evaluate(values)
            true = exact == 0 if relation.equal else exact >= 0
            found = header.run({"rsi": 5, "rax": values["x"], "rdx": values["y"], "rbp": values["z"]}).runs == 1
            assert not found or true
            assert big or found == true
            seen[found] += 1
    assert min(seen.values()) > 100


def test_a_cell_behind_a_pointer_is_read_only_when_the_other_guards_hold(header: Header) -> None:
    """The program itself reads through the pointer only where it is not null."""
    pointer, inside = LiveIn("p", Register("rdx")), LiveIn("m", Cell("rdx", 8, 8))
    guards = (Relation(linear(m=1), True, "the cell is zero"), Relation(linear(p=1) - 1, False, "a branch"))
    header.install(header.region((inside, N, pointer), TRIPS, guards))
    assert not passes(header, {"rsi": 10, "rdx": 0})
    for number in (0, 7):
        header.write_arena(8, struct.pack("<Q", number))
        assert passes(header, {"rsi": 10, "rdx": header.arena}) is (number == 0)
    header.install(header.region((inside, N, pointer), Trips(linear(m=1, n=1), 1), guards[1:]))
    assert not passes(header, {"rsi": 10, "rdx": 0})
    assert passes(header, {"rsi": 10, "rdx": header.arena})


def held_by_lane(offset: int, width: int) -> bytes:
    """What the header's xmm13 holds there."""
    return bytes((7 * n + n // 251) & 255 for n in range(64 * 13 + offset, 64 * 13 + offset + width))


def mirrored(header: Header, mirror: Mirror) -> Region:
    return replace(header.region((N, LiveIn("p", Register("rdi"))), TRIPS), mirrors=(mirror,))


@pytest.mark.parametrize("xcr0", [-1, 0])
@pytest.mark.parametrize(("offset", "width"), [(0, 8), (8, 8), (0, 4), (4, 4), (12, 4)])
def test_a_lane_is_compared_with_its_cell_and_loaded_from_it(offset: int, width: int, xcr0: int) -> None:
    header = Header(xcr0=xcr0)
    lane, held = Lane("xmm13", offset, width), held_by_lane(offset, width)
    header.install(mirrored(header, Mirror(lane, width, linear(p=1, H=16), None)))
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
    header.install(mirrored(header, Mirror(Register(name), width, linear(8, p=1, H=16), None)))
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


@pytest.mark.parametrize(("cell", "near", "read"), [
    (0, 8, True), (8, 4095 - 7, True), (0, 4096, False), (0, -1, False), (0, 1 << 47, False), (4092, 0, False)])
def test_a_cell_is_only_read_in_the_page_of_one_that_the_original_touches(header: Header, cell: int, near: int,
                                                                         read: bool) -> None:
    mirror = Mirror(Register("r12"), 8, linear(cell, p=1), linear(near, p=1))
    header.install(mirrored(header, mirror))
    header.write_arena(0, bytes(4096))
    assert header.run({"rsi": 10, "rdi": header.arena, "r12": 0}).runs == read


def test_a_cell_that_cannot_be_read_is_not(header: Header) -> None:
    """Nothing is mapped at the cell."""
    header.install(mirrored(header, Mirror(Register("r12"), 8, linear(-8, p=1), linear(0, p=1))))
    assert not passes(header, {"rsi": 10, "rdi": 4096, "r12": 0})


@pytest.mark.parametrize("width", [4, 8])
def test_what_the_kernel_leaves_in_the_slot_of_a_passed_value_is_taken_over(header: Header, width: int) -> None:
    """The slot is filled from rdi here, so that what is taken over differs from what was there."""
    value = LiveIn("v", Register("rdi"), width)
    held = held_by_lane(8, width)
    for location in (Register("r12"), Lane("xmm13", 8, width)):
        region = header.region((N, value), TRIPS)
        header.install(replace(region, passed=(Passed(location, width, "P0", "v"),)))
        registers = {"rsi": 10, "rdi": int.from_bytes(held, "little"), "r12": WORD}
        outcome = header.run(registers, FLAGS)
        check_kept(outcome, registers, FLAGS, {"r12": registers["rdi"]} if isinstance(location, Register) else {})
        outcome = header.run(registers | {"rdi": 5}, FLAGS)
        assert outcome.vectors_kept is isinstance(location, Register)
        assert outcome.runs == 1
