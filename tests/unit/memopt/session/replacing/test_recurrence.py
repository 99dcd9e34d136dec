"""Whether sizes come again, from the entries that a copy of the program comes to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Relation
from memopt.ir.scop import TRIPS
from memopt.session.replacing.capture import KNOWN_AHEAD, for_recurring_sizes
from memopt.session.replacing.history import LOOKS, History
from memopt.session.replacing.recurrence import MOST_ENTRIES, entries_ahead, recurring, sizes
from runtime.trial.shadow import End, ShadowStopped

HEADER, OUT = 0x401000, 0x402000
SIZE = Linear.symbol("rsi")


@dataclass
class Region:
    """A version for rsi == 100, wherever the array lies."""

    header: int = HEADER
    guards: tuple[Relation, ...] = (Relation(SIZE - 100, True, "specialised"),
                                    Relation(Linear.symbol("rdi") - 4096, False, "not at address zero"))


@dataclass
class Copy:
    """A copy that comes to the header with ``sizes``, one after the other, and takes ``seconds`` from one to the next.
    Each time, ``trips`` iterations are left."""

    sizes: list[int]
    seconds: float = 0.001
    trips: int = 1
    stops: list[int] = field(default_factory=list)

    def registers(self) -> None:
        """They are patched."""

    def run_to(self, address: int, timeout_s: float) -> float:
        if len(self.sizes) == 1:
            raise ShadowStopped(End.SYSTEM_CALL)
        if self.seconds > timeout_s:
            raise ShadowStopped(End.TIMEOUT)
        self.stops.append(address)
        if address == HEADER:
            self.sizes.pop(0)
        return self.seconds / 2

    def run_out(self, addresses: frozenset[int], timeout_s: float) -> float:
        address, = addresses
        return self.run_to(address, timeout_s)


@dataclass
class Loop:
    """A loop, and the code around it."""

    loop: Loop | None
    header: int = HEADER
    exits: frozenset[int] = frozenset({OUT})


@pytest.fixture
def coming(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Copy]:
    def coming(sizes: Sequence[int], seconds: float = 0.001, trips: int = 1) -> Copy:
        copy = Copy(list(sizes), seconds, trips)

        @contextmanager
        def copies(_shadow: object, _count: int) -> Iterator[tuple[Copy]]:
            yield copy,

        monkeypatch.setattr("runtime.trial.shadow.copies_of", copies)
        monkeypatch.setattr("runtime.trial.agreement.general_registers", lambda _: {"rax": (1 << 64) - 1, "rdi": 0})
        monkeypatch.setattr("runtime.trial.trial.live_values", lambda _region, ahead: {
            "rsi": ahead.sizes[0], "rdi": 8 * len(ahead.stops), TRIPS: ahead.trips})
        return copy

    return coming


def recurs() -> bool:
    return recurring(Region(), entries_ahead(Region(), frozenset({OUT}), Copy([])))  # type: ignore[arg-type]


def test_a_size_that_grows_at_each_entry_does_not_recur(coming: Callable[..., Copy]) -> None:
    copy = coming(range(200, 300))
    assert not recurs()
    assert copy.stops == [OUT, HEADER] * MOST_ENTRIES


def test_entries_have_registers_as_signed_numbers(coming: Callable[..., Copy]) -> None:
    coming([100, 101, 102])
    found = entries_ahead(Region(), frozenset({OUT}), Copy([]))  # type: ignore[arg-type]
    assert [(e["rax"], e["rdi"], e["rsi"]) for e in found] == [(-1, 0, 100), (-1, 16, 101), (-1, 32, 102)]


@pytest.mark.parametrize("number", range(1, LOOKS + 1))
def test_a_few_sizes_in_turn_recur(coming: Callable[..., Copy], number: int) -> None:
    coming([100 + n % number for n in range(100)])
    assert recurs()


def test_half_of_the_entries_are_enough(coming: Callable[..., Copy]) -> None:
    coming([100 if n % 2 else 200 + n for n in range(100)])
    assert recurs()
    coming([100 if n % 6 == 0 else 200 + n for n in range(100)])
    assert not recurs()


def test_a_few_entries_decide_nothing(coming: Callable[..., Copy]) -> None:
    """The copy ends, makes a system call or takes long: all sizes differ, but only some were seen."""
    coming(range(200, 200 + 2 * LOOKS))
    assert recurs()
    coming(range(200, 300), seconds=0.1)
    assert recurs()


def test_what_no_guard_compares_is_no_size(coming: Callable[..., Copy]) -> None:
    coming([100] * 100)
    found = entries_ahead(Region(), frozenset({OUT}), Copy([]))  # type: ignore[arg-type]
    assert len({e["rdi"] for e in found}) > LOOKS
    assert set(sizes(Region(), found)) == {(0,)}


def test_the_first_iteration_may_have_other_registers(coming: Callable[..., Copy]) -> None:
    """A caller's leftovers: the original runs that iteration, and the version comes in at the second one."""
    leftovers = [number for n in range(100) for number in (200 + n, 100)]
    copy = coming(leftovers, trips=9)
    found = entries_ahead(Region(), frozenset({OUT}), Copy([]))  # type: ignore[arg-type]
    assert set(sizes(Region(), found)) == {(0,)}
    assert copy.stops == [HEADER, OUT, HEADER] * MOST_ENTRIES
    copy = coming([200 + n for n in range(100)], trips=9)
    assert not recurs(), "nor does the second one have the size"


@dataclass
class Lifted:
    region: Region


@pytest.mark.parametrize("helps", [True, False])
def test_entries_ahead_are_known_to_another_lift(coming: Callable[..., Copy], helps: bool) -> None:
    coming(range(200, 300))
    history, code, known = History(), Loop(Loop(None)), list[int]()

    def lift() -> Lifted:
        known.append(len(history.entries(HEADER)))
        coming([100, 101] * 50 if helps else range(200, 300))
        return Lifted(Region())

    def attempt() -> object:
        return for_recurring_sizes(Lifted(Region()), lift, code, history, Copy([]))  # type: ignore[arg-type]

    if helps:
        attempt()
    else:
        with pytest.raises(Rejected, match="24 different ones in 24 entries") as refused:
            attempt()
        assert refused.value.reason is Reason.NEW_SIZES
    assert known == [KNOWN_AHEAD]
    assert history.new_sizes == (set() if helps else {HEADER})


def test_a_loop_whose_sizes_do_not_recur_is_not_looked_at_again() -> None:
    history = History()
    assert history.look_again(HEADER, {"rsi": 100})
    history.new_sizes.add(HEADER)
    assert not history.look_again(HEADER, {"rsi": 101})
    assert history.look_again(OUT, {"rsi": 100}), "another loop"
