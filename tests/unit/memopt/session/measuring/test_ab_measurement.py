"""What turns of a version and the original say of the program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import cycle
from typing import cast

import pytest

from memopt.ir.reasons import Rejected
from memopt.session.measuring import ab_measurement
from memopt.session.measuring.ab_measurement import AHEAD, MOST_INTERVALS, Comparison, Interval, comparison
from runtime.patching.code_cache import CodeCache, Statistics

SECONDS = 0.025


def taking(versions: Sequence[float], originals: Sequence[float],
           log: list[bool] | None = None) -> Callable[[bool], Interval]:
    """Turns with these rates, over and over; ``log``: which of them were the original's."""
    rates = {False: cycle(versions), True: cycle(originals)}

    def turn(resting: bool) -> Interval:
        if log is not None:
            log.append(resting)
        return Interval(round(next(rates[resting]) * SECONDS), SECONDS, 0.0 if resting else 0.9)

    return turn


def gain(turns: Callable[[bool], Interval]) -> float | None:
    found = comparison(turns)
    return None if found is None else found.gain


def test_the_pace_is_that_of_the_version() -> None:
    found = comparison(taking([2e6], [1e6]))
    assert isinstance(found, Comparison)
    assert found.pace == pytest.approx(0.5e-6)


def test_a_clear_gain_takes_one_turn_of_the_original() -> None:
    log: list[bool] = []
    assert gain(taking([2e6], [1e6], log=log)) == pytest.approx(2.0)
    assert log == [False, True, False]


@pytest.mark.parametrize("ratio", [1.1, 0.9, 0.5])
def test_what_all_turns_say_is_believed(ratio: float) -> None:
    log: list[bool] = []
    assert gain(taking([ratio * 1e6], [1e6], log=log)) == pytest.approx(ratio)
    assert log.count(True) == AHEAD


@pytest.mark.parametrize("ratio", [1.08, 0.92])
def test_turns_that_others_disturb_are_outvoted(ratio: float) -> None:
    log: list[bool] = []
    found = gain(taking([ratio * 1e6], cycle([0.8e6 * ratio ** 2, 1.25e6, 1e6, 1e6, 1e6]), log=log))
    assert found == pytest.approx(ratio)
    assert AHEAD < log.count(True) < MOST_INTERVALS


def test_what_is_as_good_takes_no_more_turns_than_tell_that() -> None:
    log: list[bool] = []
    assert gain(taking([1e6], [0.9e6, 1.1e6], log=log)) == pytest.approx(1.0, abs=0.02)
    assert log.count(True) == MOST_INTERVALS


def test_one_turn_elsewhere_is_no_phase() -> None:
    assert gain(taking([1.3e6, *[0.9e6] * 30], [1e6])) == pytest.approx(0.9)


def test_a_program_with_phases_says_nothing() -> None:
    """Where a turn is spent in the loop and another elsewhere, rates are about that."""
    assert gain(taking([1e6, 3e6], [2e6])) is None


def test_an_original_that_does_not_come_by_says_nothing() -> None:
    assert gain(taking([1e6], [0.0])) is None


def test_processor_time_is_what_has_passed_where_a_tick_hides_the_difference() -> None:
    assert ab_measurement._finer(0.024, 0.0253) == 0.0253
    assert ab_measurement._finer(0.016, 0.0253) == 0.016
    assert ab_measurement._finer(0.048, 0.0253) == 0.048


class Program:
    """It comes by a header ``passes`` times in a run, then does other things for ``between`` seconds, over and over; it
    is its own clock and its version's cache. The original takes ``original`` seconds from pass to pass, the version
    ``version`` for an iteration of its; it leaves the last one to the original."""

    def __init__(self, passes: Sequence[int], original: float, version: float, between: float) -> None:
        self.passes, self.original, self.version, self.between = passes, original, version, between
        self.now, self.resting = 0.0, False
        self.counted = Statistics(0, 0, 0)
        self._due = 0.0
        self._next = self._events()

    def _events(self) -> Iterator[float]:
        """The seconds until the next event, each after what happens at this one."""
        for passes in cycle(self.passes):
            at = 0
            while at < passes:
                self._count(entries=1)
                if not self.resting and at < passes - 1:
                    iterations = passes - 1 - at
                    self._count(runs=1)
                    yield iterations * self.version
                    self._count(iterations=iterations)
                    at += iterations
                at += 1
                yield self.original
            yield self.between

    def _count(self, entries: int = 0, runs: int = 0, iterations: int = 0) -> None:
        was = self.counted
        self.counted = Statistics(was.entries + entries, was.runs + runs, was.iterations + iterations)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        while self._due <= self.now:
            self._due += next(self._next)

    def monotonic(self) -> float:
        return self.now

    def read_statistics(self) -> Statistics:
        return self.counted

    def rest(self, resting: bool) -> None:
        self.resting = resting


def whole_turns(program: Program, monkeypatch: pytest.MonkeyPatch) -> ab_measurement._Turns:
    monkeypatch.setattr(ab_measurement, "time", program)
    monkeypatch.setattr(ab_measurement, "processor_seconds", lambda pid: program.now)
    program.sleep(0.1)
    cache = cast(CodeCache, program)
    apart = ab_measurement._seconds_apart(0, cache)
    assert apart is not None
    return ab_measurement._Turns(0, cache, 1, apart, program.rest)


@pytest.mark.parametrize("passes", [41, 100])
@pytest.mark.parametrize("gain", [0.5, 0.97, 1.03, 1.9])
@pytest.mark.parametrize("between", [0.001, 0.05])
def test_a_run_is_a_turn_where_runs_are_long(passes: int, gain: float, between: float,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    original = 0.12 / passes
    program = Program([passes], original, original / gain, between)
    taken = whole_turns(program, monkeypatch)
    assert taken.apart == pytest.approx(between + original + (passes - 1) * original / gain, rel=0.02)
    taken.begin()
    found = comparison(taken.whole)
    assert found is not None
    assert found.gain == pytest.approx((between + 0.12) / taken.apart, rel=0.03)


@pytest.mark.parametrize("passes", [[100, 300], [50, 200, 100], [100, 101, 30], [100, 101], [100, 110], [10]])
@pytest.mark.parametrize("gain", [0.5, 0.9, 1.1, 2.0])
def test_runs_that_differ_or_are_short_say_nothing_or_the_truth(passes: list[int], gain: float,
                                                                monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn would be one run and the beginning of another."""
    taken = whole_turns(Program(passes, 4e-4, 4e-4 / gain, 1e-4), monkeypatch)
    with suppress(Rejected):
        taken.begin()
        found = comparison(taken.whole)
        assert found is None or found.gain == pytest.approx(gain, rel=0.15)


def test_a_program_that_ends_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program([100], 1e-3, 1e-3, 1e-3)
    taken = whole_turns(program, monkeypatch)
    taken.begin()
    program.between = 1e9
    began = program.now
    with pytest.raises(Rejected):
        comparison(taken.whole)
    assert program.now < began + 5
