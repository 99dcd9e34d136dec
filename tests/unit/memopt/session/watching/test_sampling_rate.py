"""How often a process is sampled: seldom once nothing new turns up, and never beyond its allowance."""

from __future__ import annotations

from memopt.session.measuring.hotness import Hotness
from memopt.session.watching.sampling_rate import BURST, PER_SECOND, SLOWEST, SamplingRate, interval_after
from runtime.sampling.perf_events import INTERVAL_NS
from runtime.sampling.samples import Sample, Source

STEP = 0.03


class Recorded:
    """A process that is always at ``addresses``, in turn."""

    source, note, lost = Source.PERF_EVENT, "", 0

    def __init__(self, addresses: list[int]) -> None:
        self.interval_ns = INTERVAL_NS
        self.taken = 0
        self._addresses = addresses

    def read(self) -> list[Sample]:
        number = round(STEP * 1e9 / self.interval_ns)
        new = [Sample(self._addresses[(self.taken + n) % len(self._addresses)], 1) for n in range(number)]
        self.taken += number
        return new

    def set_interval(self, nanoseconds: int) -> None:
        self.interval_ns = nanoseconds

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def close(self) -> None: ...


def run(pace: SamplingRate, start: float, seconds: float, busy: bool = False) -> float:
    for number in range(1, round(seconds / STEP) + 1):
        pace.step(start + number * STEP, busy)
    return start + seconds


def test_the_interval_doubles_as_time_goes_by_without_news() -> None:
    assert [interval_after(t) for t in (0.0, 0.05, 0.15, 0.25, 0.5, 1.0, 60.0)] == [1, 1, 2, 4, 8, 16, SLOWEST]


def test_settled_code_is_sampled_seldom_and_new_code_often() -> None:
    sampler, hotness = Recorded([0x1000]), Hotness()
    hotness.settle([(0x1000, 0x1010)])
    pace = SamplingRate(sampler, hotness, 0.0)
    now = run(pace, 0.0, 3.0)
    assert sampler.interval_ns == SLOWEST * INTERVAL_NS
    assert pace.look_after_seconds > 0.3
    sampler._addresses = [0x5000]
    run(pace, now, 2 * STEP)
    assert sampler.interval_ns == INTERVAL_NS


def test_while_a_loop_is_worked_on_few_samples_are_taken_and_afterwards_many_again() -> None:
    sampler = Recorded([0x1000])
    pace = SamplingRate(sampler, Hotness(), 0.0)
    now = run(pace, 0.0, 0.3, busy=True)
    assert sampler.interval_ns == SLOWEST * INTERVAL_NS
    run(pace, now, STEP)
    assert sampler.interval_ns == INTERVAL_NS


def test_code_that_never_settles_is_sampled_within_the_allowance() -> None:
    sampler = Recorded([n << 12 for n in range(1000)])
    run(SamplingRate(sampler, Hotness(), 0.0), 0.0, 60.0)
    assert sampler.taken < 1.1 * (BURST + 60 * PER_SECOND)


def test_shares_do_not_depend_on_the_interval() -> None:
    sampler, hotness = Recorded([0x1000]), Hotness()
    hotness.settle([(0, 1 << 20)])
    pace = SamplingRate(sampler, hotness, 0.0)
    now = run(pace, 0.0, 3.0)
    sampler._addresses = [0x9000]
    run(pace, now, 3.0)
    assert 0.45 < hotness.share([(0x1000, 0x1001)]) < 0.55


def test_what_runs_now_outweighs_what_was_sampled_more_often_before() -> None:
    hotness = Hotness()
    hotness.add([0x1000] * 100)
    hotness.add([0x9000] * 10, SLOWEST)
    assert hotness.hottest() == 0x9000


def test_a_sample_weighs_what_it_stands_for() -> None:
    """A thread that was made early is sampled as often as then; its samples must not weigh like rare ones."""
    sampler, hotness = Recorded([0x1000]), Hotness()
    pace = SamplingRate(sampler, hotness, 0.0)
    pace.step(STEP, True)
    assert sampler.interval_ns == SLOWEST * INTERVAL_NS
    hotness.samples.clear()
    early = [Sample(0x2000, 2, 0, 77, 10**9 + n * INTERVAL_NS + 100 * (n % 2)) for n in range(32)]
    late = [Sample(0x3000, 3, 0, 78, 10**9 + n * SLOWEST * INTERVAL_NS) for n in range(2)]
    sampler.read = lambda: [Sample(0x1000, 1), *early, *late]
    pace.step(2 * STEP, True)
    assert hotness.samples == {0x1000: SLOWEST, 0x2000: 32, 0x3000: 2 * SLOWEST}
