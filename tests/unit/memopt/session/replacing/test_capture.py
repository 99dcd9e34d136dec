"""What is tried at the next arrival at a header, and what is not; how many iterations are planned for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace

import pytest

from memopt.ir.parse import parse_region
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.scop import TRIPS
from memopt.options import Options
from memopt.session.replacing.capture import (
    free_register,
    intervals,
    lift_at_next_arrival,
    lifted_code,
    trip_count,
)
from memopt.session.replacing.process import Process
from runtime.trial.shadow import End, ShadowStopped
from tests.support.sites import site_of

HEADER, BEHIND = 0x401000, 0x402000


@dataclass
class Region:
    header: int = HEADER


@dataclass
class Code:
    loop: Region = field(default_factory=Region)
    exits: frozenset[int] = frozenset({BEHIND})


@dataclass
class Copy:
    """A shadow that comes to the header ``times`` more."""

    times: int
    arrived: list[int] = field(default_factory=list)

    def run_to(self, address: int, timeout_s: float) -> float:
        assert timeout_s > 0
        if len(self.arrived) == self.times:
            raise ShadowStopped(End.ENDED)
        self.arrived.append(address)
        return 0.0

    def run_out(self, addresses: frozenset[int], timeout_s: float) -> None:
        address, = addresses
        self.run_to(address, timeout_s)


def at_next_arrival(first: Reason, refusal: Reason | None = None, times: int = 1) -> tuple[str, list[int]]:
    def lift() -> str:
        if refusal is not None:
            raise Rejected(refusal)
        return "lifted"

    copy, process = Copy(times), Process(0, Options(), nullcontext, 0.0)
    return lift_at_next_arrival(process, Code(), copy, Rejected(first), lift), copy.arrived


def test_a_loop_is_looked_at_again_where_its_header_is_reached_next() -> None:
    assert at_next_arrival(Reason.DATA_DEPENDENT_BRANCH) == ("lifted", [HEADER])


def test_an_entry_that_is_too_short_is_left_first() -> None:
    assert at_next_arrival(Reason.TOO_SHORT, times=2) == ("lifted", [BEHIND, HEADER])


@pytest.mark.parametrize(("first", "refusal", "times"), [
    (Reason.TRIP_COUNT, Reason.NON_AFFINE, 1),
    (Reason.TRIP_COUNT, None, 0),
    (Reason.UNSUPPORTED_INSTRUCTION, None, 1),
    (Reason.THREADS, None, 1),
])
def test_the_first_refusal_is_the_one_that_counts(first: Reason, refusal: Reason | None, times: int) -> None:
    with pytest.raises(Rejected) as refused:
        at_next_arrival(first, refusal, times)
    assert refused.value.reason is first


@pytest.mark.parametrize("trips", [3, 2000])
def test_the_next_entry_is_two_stops_away_however_long_this_one_is(monkeypatch: pytest.MonkeyPatch,
                                                                   trips: int) -> None:
    copy, left = Copy(2), [trips, 4000]

    @contextmanager
    def copies(_shadow: object, _count: int) -> Iterator[tuple[Copy]]:
        yield copy,

    monkeypatch.setattr("runtime.trial.shadow.copies_of", copies)
    monkeypatch.setattr("runtime.trial.trial.live_values", lambda *_: {TRIPS: left.pop(0)})
    assert trip_count(Region(), frozenset({BEHIND}), Copy(0)) == 4000
    assert copy.arrived == [BEHIND, HEADER]


_TWO = """
i:  inc rbx; cmp rbx, r8; jne i
    xor ecx, ecx; mov eax, 12345678
k:  add rdx, 0x12345678; inc rcx; cmp rcx, r8; jne k
"""


@pytest.mark.parametrize(("dead", "behind"), [((), False), (("rcx",), True)])
def test_the_code_of_a_region(dead: tuple[str, ...], behind: bool) -> None:
    """Code behind the loop counts where it shows that registers are dead, but not where another patch may come."""
    site = site_of(_TWO)
    first, second = sorted(site.loops, key=lambda x: x.header)
    region = replace(parse_region("region 0x401000\n  R = (5) / 1\n"), dead_registers=dead)
    code = {start + n: byte for start, data in lifted_code(site, first, region) for n, byte in enumerate(data)}
    text = {start + n: byte for start, block in site.graph.blocks.items() for n, byte in enumerate(block.code)}
    assert code.items() <= text.items()
    assert set(range(first.header, first.header + 8)) <= code.keys()
    assert (second.header + 5 in code) is behind
    assert not code.keys() & set(range(second.header, second.header + 5))


def test_intervals_of_bytes() -> None:
    assert intervals({4: 1, 8: 3, 5: 2}) == ((4, b"\1\2"), (8, b"\3"))
    assert intervals({}) == ()


def test_the_register_that_an_entry_may_use() -> None:
    region = parse_region("region 0x401000\n  rax = s64 rax\n  m = s64 [rbx+0x8]:8\n  R = (rax) / 1\n"
                          "  rejoin rcx := H\n")
    assert free_register(region, frozenset(("rax", "rbx", "rcx", "rsp", "rsi"))) == "rsi"
    assert free_register(region, frozenset(("rax", "rbx", "rcx", "rsp"))) == ""
