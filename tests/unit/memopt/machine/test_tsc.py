"""The rate of the time-stamp counter, read from a text of /proc/cpuinfo."""

from __future__ import annotations

import builtins
import io
from collections.abc import Callable, Iterator

import pytest

from memopt.machine.tsc import ticks_per_second

Reading = Callable[[str], float]


@pytest.fixture
def rate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reading]:
    """The rate on a machine whose /proc/cpuinfo has the given text."""

    def read(text: str) -> float:
        ticks_per_second.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(builtins, "open", lambda name, **_: {"/proc/cpuinfo": io.StringIO(text)}[name])
            return ticks_per_second()

    yield read
    ticks_per_second.cache_clear()


def test_bogomips_are_twice_the_rate_in_megahertz(rate: Reading) -> None:
    assert rate("processor\t: 0\ncpu MHz\t\t: 1200.000\nbogomips\t: 5000.25\nflags\t\t: fpu tsc\n") == 2500.125e6


def test_the_first_processor_counts(rate: Reading) -> None:
    assert rate("bogomips\t: 4000.00\n\nprocessor\t: 1\nbogomips\t: 6000.00\n") == 2e9


def test_a_machine_that_does_not_say_has_one_gigahertz(rate: Reading) -> None:
    assert rate("processor\t: 0\n") == 1e9


def test_it_is_read_once(rate: Reading) -> None:
    assert rate("bogomips\t: 4000.00\n") == ticks_per_second() == 2e9
