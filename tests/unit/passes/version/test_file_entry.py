"""Code for a file, entered: a frame that starts as zeros, a processor that does not fit, and nests that rest."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import replace

import pytest

from memopt.ir.linear import Linear
from memopt.ir.region import LiveIn, Region, Register, Trips
from memopt.ir.scop import TRIPS as R
from memopt.ir.scop import Access, Array, Dimension, ElementType, Read, Scop, Statement
from passes.version import file_entry
from passes.version.file_entry import MISSES_IN_A_ROW
from tests.support.entering import TRIPS, N, check_kept
from tests.support.header import Header, Outcome, linear


@pytest.fixture
def header() -> Header:
    return Header(in_file=True)


def region(header: Header, *live_ins: LiveIn, trips: Trips = TRIPS) -> Region:
    return replace(header.region((N, *live_ins), trips), flags_dead=True)


def entered(header: Header, trips: int) -> Outcome:
    """One entry; the program can see nothing but the flags, which are dead."""
    outcome = header.run({"rsi": trips, "rbx": 7, "rdx": 8})
    check_kept(outcome, {"rsi": trips, "rbx": 7, "rdx": 8}, outcome.flags)
    return outcome


def test_a_frame_of_zeros_has_no_limit(header: Header) -> None:
    header.install(region(header))
    for trips in (10, 2, 1000):
        outcome = entered(header, trips)
        assert (outcome.runs, outcome.trips, outcome.limit) == (1, trips, trips - 1)
    assert header.frame_busy() == 0


def test_a_processor_that_does_not_fit_gets_the_original_for_good(header: Header,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_entry, "_OSXSAVE", 16)  # a bit that no processor has
    header.install(region(header))
    for _ in range(3):
        outcome = entered(header, 10)
        assert (outcome.runs, outcome.statistics) == (0, (0, 0, 0))
    assert header.frame_busy()


def test_a_nest_that_never_fits_rests_longer_and_longer(header: Header) -> None:
    header.install(region(header))
    asked = [bool(header.run({"rsi": 1}).statistics[0]) for _ in range(5 * MISSES_IN_A_ROW)]
    assert asked == ([True] * MISSES_IN_A_ROW + [False] * MISSES_IN_A_ROW
                     + [True] * MISSES_IN_A_ROW + [False] * 2 * MISSES_IN_A_ROW)
    assert entered(header, 10).runs == 1


def test_a_run_ends_the_row_of_misses(header: Header) -> None:
    header.install(region(header))
    for _ in range(3):
        assert all(header.run({"rsi": 1}).statistics[0] for _ in range(MISSES_IN_A_ROW - 1))
        assert header.run({"rsi": 10}).runs == 1


@pytest.fixture
def several_threads() -> Iterator[ctypes.c_int]:
    """Where glibc notes that there are several threads, in the control block of this one (x86_64/nptl/tls.h)."""
    base, get_fs, arch_prctl = ctypes.c_uint64(), 0x1003, 158
    assert ctypes.CDLL(None).syscall(arch_prctl, get_fs, ctypes.byref(base)) == 0
    word = ctypes.c_int.from_address(base.value + 0x18)
    before = word.value
    yield word
    word.value = before


def test_a_version_for_one_thread_does_not_run_beside_another(header: Header, several_threads: ctypes.c_int,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Region, "single_threaded", property(lambda _: True))
    header.install(region(header))
    for threads, runs in ((0, 1), (1, 0), (0, 1)):
        several_threads.value = threads
        assert entered(header, 10).runs == runs


def test_addresses_in_the_file_are_distances_from_the_header(header: Header) -> None:
    """Here the trip count is the distance of rsi from a place behind the header."""
    place = LiveIn("rip", Register("rip"))
    trips = Trips(linear(-0x1000, n=1, rip=-1), 1)
    header.install(region(header, place, trips=trips))
    outcome = header.run({"rsi": header.address + 0x1000 + 12})
    assert (outcome.runs, outcome.trips) == (1, 12)


@pytest.mark.parametrize(("extents", "least"), [
    (("n", "n", "n"), {"n": 12, R: 12}),
    (("n", "n", "3"), {"n": 23, R: 23}),
    (("n", "2000", "3"), {}),
    (("i", "n", "n"), {"n": 12, R: 12}),
])
def test_a_version_wants_enough_to_do(extents: tuple[str, ...], least: dict[str, int]) -> None:
    """Loops over i < R, and ``extents`` inside; the last one is that of the deepest loop."""
    dimensions = [Dimension("i", Linear.symbol(R)), *(
        Dimension(name, Linear.of(int(trips)) if trips.isdigit() else Linear.symbol(trips))
        for name, trips in zip("jk", extents[1:], strict=True))]
    if extents[0] == "i":
        dimensions.insert(1, Dimension("t", Linear.symbol("i")))
    array = Array("A", ElementType.F64, Linear.symbol("a"), (8,))
    access = Access("A", (Linear.symbol("k"),))
    statement = Statement("S", tuple(dimensions), access, (access,), Read(0), (0,) * (len(dimensions) + 1))
    found = file_entry.least_work(Region(0, b"", (), Trips(Linear.symbol("n"), 1), (), (), (),
                                         Scop((array,), (statement,))))
    assert {min(g.expression.symbols): -g.expression.constant for g in found} == least
