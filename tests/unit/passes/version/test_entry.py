"""The way into a version, executed: what the program can see, whichever way it goes."""

from __future__ import annotations

import random

import pytest

from tests.support.entering import INEXACT, TRIPS, N, check_kept, flag_words, passes
from tests.support.header import FLAGS, MXCSR, VALUES, WORD, Header


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


def test_statistics(header: Header) -> None:
    header.install(header.region((N,), TRIPS))
    outcome = header.run({"rsi": 10})
    entries, runs, iterations, cycles = outcome.statistics
    assert (entries, runs, iterations) == (1, 1, 9)
    assert 0 < cycles < 10**9
    assert header.run({"rsi": 1}).statistics == (1, 0, 0, 0)
