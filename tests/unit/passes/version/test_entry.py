"""The way into a version, executed: what the program can see, whichever way it goes."""

from __future__ import annotations

import random

import pytest

from memopt.ir.code import FRAME_BUSY, FRAME_RETIRED
from tests.support.emulated import ITERATIONS, NUMBERS, Machine, expected, values
from tests.support.entering import INEXACT, TRIPS, N, check_kept, flag_words, passes
from tests.support.header import FLAGS, FREE, LIMIT, MXCSR, VALUES, WORD, Header


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


def test_without_xsave_the_sse_state_is_kept() -> None:
    header = Header(xcr0=0)
    header.install(header.region((N,), TRIPS))
    assert passes(header, {"rsi": 10}, FLAGS)
    assert not passes(header, {"rsi": 1}, FLAGS)


@pytest.mark.parametrize("rcx", [0, 1, WORD])
@pytest.mark.parametrize("busy", [1, 0x1234_0000_0000, FRAME_RETIRED])
def test_a_busy_frame_is_left_alone(header: Header, busy: int, rcx: int) -> None:
    header.install(header.region((N,), TRIPS))
    header.busy = busy
    for flags in flag_words():
        outcome = header.run({"rsi": 10, "rcx": rcx}, flags)
        check_kept(outcome, {"rsi": 10, "rcx": rcx}, flags)
        assert (outcome.runs, outcome.statistics) == (0, (0, 0, 0))
        assert header.frame_busy()
    header.busy = 0
    assert passes(header, {"rsi": 10, "rcx": rcx})


@pytest.mark.parametrize(("stack", "taken_over"), [(0, True), (-256, False), (256, False)])
def test_a_holder_that_left_by_longjmp_gives_way(stack: int, taken_over: bool) -> None:
    """Two activations that are alive cannot have the same stack pointer."""
    machine = Machine(flags_dead=True)
    entered = values(0x33, 77, ITERATIONS)
    for step in range(20, 40):  # somewhere behind the lock
        machine.reset()
        machine.start(entered)
        machine.go(step)
        again = values(0x44, 88, ITERATIONS) | {"rsp": entered["rsp"] + stack}
        machine.start(again)
        machine.go()
        wanted = expected(again, taken_over)
        assert {n: v for n, v in machine.registers().items() if n in wanted and n != "eflags"} == (
            {n: v for n, v in wanted.items() if n != "eflags"}), f"at instruction {step}"


@pytest.mark.parametrize("flags_dead", [False, True])
@pytest.mark.parametrize(("chunk", "runs"), [(1, 9), (2, 5), (4, 3), (8, 2), (9, 1), (LIMIT, 1)])
def test_a_version_goes_through_its_guards_after_each_chunk(flags_dead: bool, chunk: int, runs: int) -> None:
    machine = Machine(flags_dead)
    entered = values(0x33, 77, ITERATIONS)
    machine.reset(chunk=chunk)
    machine.start(entered)
    passed = machine.kernels()
    wanted = expected(entered, True)
    compared = wanted.keys() - ({"eflags"} if flags_dead else {FREE})
    assert {n: machine.registers()[n] for n in compared} == {n: wanted[n] for n in compared}
    assert (passed, machine.runs()) == (runs, 1)


def test_a_chunk_ends_with_the_guards_of_the_next(header: Header) -> None:
    """Here memopt lowers the limit meanwhile; a cell that is read in each iteration is compared in the same way."""
    machine = Machine(flags_dead=True)
    machine.reset(chunk=3)
    machine.start(values(0x33, 77, ITERATIONS))
    assert machine.kernels(lambda: machine.limit(0)) == 1
    assert machine.registers()["rcx"] == 77 + 3


def test_statistics(header: Header) -> None:
    header.install(header.region((N,), TRIPS))
    outcome = header.run({"rsi": 10})
    assert outcome.statistics == (1, 1, 9)
    assert header.run({"rsi": 1}).statistics == (1, 0, 0)


@pytest.mark.parametrize("outer_rcx", [0, 77])
@pytest.mark.parametrize("inner_rcx", [0, 88])
@pytest.mark.parametrize("outer_trips", [ITERATIONS, 1])
@pytest.mark.parametrize("flags_dead", [False, True])
def test_a_handler_enters_the_nest_at_every_instruction(outer_rcx: int, inner_rcx: int, outer_trips: int,
                                                        flags_dead: bool) -> None:
    """As a signal handler may do. The nest runs to its end there, and nobody's registers are lost."""
    machine = Machine(flags_dead)
    outer, inner = values(0x33, outer_rcx, outer_trips), values(0x44, inner_rcx, ITERATIONS) | {"rsp": 0x6000}
    total = machine.instructions(outer)
    assert total > 35
    inner_ran = 0
    for step in range(total):
        machine.reset()
        machine.start(outer)
        machine.go(step)
        interrupted = {name: machine.emulator.reg_read(number) for name, number in NUMBERS.items()}
        before = machine.runs()
        machine.start(inner)
        machine.go()
        ran = machine.runs() - before
        inner_ran += ran
        seen = machine.registers()
        compared = [n for n in inner if n != ("eflags" if flags_dead else FREE)]
        wanted = expected(inner, bool(ran))
        assert all(seen[n] == wanted[n] for n in compared), f"inner, at instruction {step}"
        for name, value in interrupted.items():
            machine.emulator.reg_write(NUMBERS[name], value)
        machine.go()
        seen = machine.registers()
        wanted = expected(outer, outer_trips == ITERATIONS)
        assert all(seen[n] == wanted[n] for n in compared), f"outer, at instruction {step}"
        busy = machine.emulator.mem_read(machine.placement.frame, 8)
        assert bytes(busy) == bytes(8)
    # Entered before busy was taken, it runs the version; afterwards the original.
    assert 0 < inner_ran < 10


@pytest.mark.parametrize(("before", "after"), [(0, LIMIT), (LIMIT, 0), (0, 1 << 62), (3, LIMIT), (LIMIT, 3)])
def test_the_limit_changes_at_every_instruction(before: int, after: int) -> None:
    """As memopt changes it to have the version rest or run again."""
    machine = Machine(flags_dead=False)
    entered = values(0x33, 77, ITERATIONS)
    iterations = set()
    for step in range(machine.instructions(entered, before)):
        machine.reset(before)
        machine.start(entered)
        machine.go(step)
        machine.limit(after)
        machine.go()
        seen = machine.registers()
        iterations.add(seen["rcx"] - entered["rcx"])
        assert all(seen[name] == value for name, value in entered.items()
                   if name not in ("rcx", "rsi", FREE)), f"at instruction {step}"
    assert iterations == {min(limit, ITERATIONS - 1) for limit in (before, after)}


@pytest.mark.parametrize("rcx", [0, 77])
@pytest.mark.parametrize("flags_dead", [False, True])
def test_it_is_taken_out_at_every_instruction(flags_dead: bool, rcx: int) -> None:
    """As runtime.patching.install.remove does: whoever has no lock by then never gets to the kernel, so that scratch
    memory may go. Whoever has it comes out as usual, and is the last one."""
    machine = Machine(flags_dead)
    entered = values(0x33, rcx, ITERATIONS)
    compared = [name for name in entered if name != "eflags" or not flags_dead]
    lock, both = machine.placement.frame + FRAME_BUSY, set[bool]()
    for step in range(machine.instructions(entered)):
        machine.reset()
        machine.start(entered)
        machine.go(step)
        machine.limit(0)
        held, before = any(machine.emulator.mem_read(lock, 8)), machine.runs()
        if not held:
            machine.emulator.mem_write(lock, FRAME_RETIRED.to_bytes(8, "little"))
        machine.go()
        seen = machine.registers()
        moved = seen["rcx"] != entered["rcx"]
        assert seen["rcx"] == expected(entered, moved)["rcx"]
        assert all(seen[n] == expected(entered, moved)[n] for n in compared), f"at instruction {step}"
        if not held:
            assert machine.runs() == before, f"at instruction {step}"
        both.add(held and moved)
        before = machine.runs()
        machine.start(entered)
        machine.go()
        assert machine.runs() == before, f"after instruction {step}"
        assert all(machine.registers()[n] == entered[n] for n in compared)
    assert both == {False, True}
