"""When a copy is worth its cost: by the program's memory, its time so far, and what earlier copies have cost."""

from __future__ import annotations

import mmap
import os
from types import SimpleNamespace

import pytest

from memopt.ir.reasons import Reason, Rejected
from runtime.trial import copy_cost
from runtime.trial.copy_cost import FREE_SECONDS, CopyBudget, page_seconds

PID, PAGE_S, MIB = 7, 4e-6, 256  # pages
PAGE_BYTES = 4096


class Program:
    """A process with so many pages, that has run for some seconds and taken some faults."""

    def __init__(self, pages: int, seconds: float) -> None:
        self.pages, self.seconds, self.faults = pages, seconds, 0
        self.used: int | None = None  # pages, as far as the kernel tells
        self.now = 100.0


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Program:
    made = Program(450 * MIB, 1.9)
    monkeypatch.setattr(copy_cost, "page_seconds", lambda: PAGE_S)
    monkeypatch.setattr(copy_cost, "_pages", lambda _: made.pages)
    monkeypatch.setattr(copy_cost, "_faults", lambda _: made.faults)
    monkeypatch.setattr(copy_cost, "running_seconds", lambda _: made.seconds)
    monkeypatch.setattr(copy_cost, "_forget", lambda _: made.used is not None)
    monkeypatch.setattr(copy_cost, "_used", lambda _: made.used)
    monkeypatch.setattr(copy_cost, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


def refused(budget: CopyBudget) -> bool:
    if budget.enough(PID):
        budget.check(PID)
        return False
    with pytest.raises(Rejected) as caught:
        budget.check(PID)
    assert caught.value.reason is Reason.COPY_COSTS
    return True


def test_a_large_program_that_ends_soon_is_not_copied(program: Program) -> None:
    assert refused(CopyBudget())
    with pytest.raises(Rejected, match=r"0.46 s for 450 MiB, after 1.9 s of the program's time"):
        CopyBudget().check(PID)
    program.seconds = 60.0
    assert not refused(CopyBudget())


def test_a_small_program_is_copied_at_once(program: Program) -> None:
    program.pages, program.seconds = 30 * MIB, 0.05
    assert not refused(CopyBudget())


def test_less_at_stake_is_worth_less(program: Program) -> None:
    program.seconds = 10.0
    assert not refused(CopyBudget(at_stake=1.0))
    assert refused(CopyBudget(at_stake=0.1))


def test_all_copies_together_count(program: Program) -> None:
    program.pages, program.seconds = 10 * MIB, 0.1
    budget = CopyBudget()
    made = 0
    while not refused(budget):
        with budget.counted(PID):
            program.faults += program.pages
        made += 1
    assert 1 < made < 25
    assert budget.spent == pytest.approx(made * program.pages * PAGE_S)
    assert budget.spent <= budget.limit(PID)


def test_pages_that_are_only_read_cost_nothing(program: Program) -> None:
    """The first copy is judged by all pages, the next one by those that were written."""
    program.seconds = 60.0
    budget = CopyBudget()
    with budget.counted(PID):
        program.faults += 100
    assert budget.spent == pytest.approx(100 * PAGE_S)
    assert budget.cost(PID) == pytest.approx(200 * PAGE_S)
    program.seconds = 1.0
    assert not refused(budget)
    with budget.counted(PID):
        program.faults += 10 * program.pages  # new memory, too: no more than all pages were copied
    assert budget.spent == pytest.approx((100 + program.pages) * PAGE_S)


def test_a_copy_that_raises_is_counted(program: Program) -> None:
    budget = CopyBudget()

    def fail() -> None:
        with budget.counted(PID):
            program.faults += 50
            raise Rejected(Reason.NOT_REACHED)

    with pytest.raises(Rejected):
        fail()
    assert budget.spent == pytest.approx(50 * PAGE_S)


def test_the_time_of_a_page_is_measured_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    page_seconds.cache_clear()
    assert 1e-6 <= page_seconds() <= 21e-6
    for measured, expected in ((0.0, 2e-6), (1.0, 20e-6)):
        page_seconds.cache_clear()
        monkeypatch.setattr(copy_cost, "_touch", lambda _, measured=measured: measured)
        assert page_seconds() == pytest.approx(expected)
    page_seconds.cache_clear()
    assert FREE_SECONDS <= 0.2


def test_what_proc_says_of_this_process() -> None:
    from os import getpid

    assert copy_cost._pages(getpid()) > 1000
    before = copy_cost._faults(getpid())
    copy_cost._touch(500)
    assert copy_cost._faults(getpid()) - before >= 500
    assert copy_cost._pages(2**22 + 1) == copy_cost._faults(2**22 + 1) == 0


def test_memory_that_lies_idle_costs_nothing(program: Program) -> None:
    """A second later it is known which pages the program uses."""
    program.pages, program.used, program.seconds = 10_000 * MIB, 20 * MIB, 5.0
    budget = CopyBudget()
    assert refused(budget)
    program.now += 0.5
    assert refused(budget)
    program.now += 1.0
    assert not refused(budget)
    assert budget.cost(PID) == pytest.approx(20 * MIB * PAGE_S)
    program.used = 5_000 * MIB  # by and by it uses more
    program.now += 10.0
    assert refused(budget)


def test_where_the_kernel_does_not_tell_all_pages_count(program: Program) -> None:
    program.pages, program.seconds = 10_000 * MIB, 5.0
    budget = CopyBudget()
    for _ in range(3):
        assert refused(budget)
        program.now += 10.0


def test_what_the_kernel_tells_of_used_pages() -> None:
    """Of a child with 50 MiB that goes on to use 5 of them."""
    ready, go, done = os.pipe(), os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        with mmap.mmap(-1, 50 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as area:
            for at in range(0, 50 << 20, PAGE_BYTES):
                area[at] = 1
            os.write(ready[1], b"!")
            os.read(go[0], 1)
            for at in range(0, 5 << 20, PAGE_BYTES):
                area[at] = 2
            os.write(ready[1], b"!")
            os.read(done[0], 1)
        os._exit(0)
    try:
        os.read(ready[0], 1)
        if not copy_cost._forget(child):
            pytest.skip("the kernel does not tell")
        os.write(go[1], b"!")
        os.read(ready[0], 1)
        used = copy_cost._used(child)
    finally:
        os.write(done[1], b"!")
        os.waitpid(child, 0)
    assert used is not None
    assert (5 << 20) // PAGE_BYTES <= used < (40 << 20) // PAGE_BYTES
    assert copy_cost._used(2**22 + 1) is None
    assert not copy_cost._forget(2**22 + 1)
