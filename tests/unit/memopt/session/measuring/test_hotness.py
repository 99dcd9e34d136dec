"""What is offered next, and what is not offered any more."""

from __future__ import annotations

from memopt.session.measuring.hotness import ENOUGH, Hotness


def test_settled_addresses_are_offered_again_once_they_are_open() -> None:
    hotness, ranges = Hotness(), [(0x1000, 0x1010), (0x1020, 0x1030)]
    hotness.add([0x1004] * ENOUGH)
    assert hotness.hottest() == 0x1004
    hotness.settle(ranges)
    hotness.add([0x1004] * ENOUGH)
    assert hotness.hottest() is None
    hotness.reopen(ranges[:1])
    hotness.add([0x1004, 0x1024] * ENOUGH)
    assert hotness.hottest() == 0x1004
    assert hotness.settled == ranges[1:]


def test_what_part_of_the_time_is_not_settled_yet() -> None:
    hotness = Hotness()
    assert hotness.open_share == 0.0
    hotness.add([0x1004] * 10, 3)
    assert hotness.open_share == 1.0
    hotness.settle([(0x1000, 0x1010)])
    hotness.add([0x1004] * 30 + [0x2000] * 10)
    assert hotness.open_share == 0.25
