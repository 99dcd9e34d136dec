"""The profile of a running program by sampling, and the hottest address that no decision covers yet.

Example: of 100 samples 60 fall on 0x401150 and 40 on 0x402000; ``hottest`` is 0x401150. Once the loop around that is
decided (``settle``), ``hottest`` is 0x402000.

In: sampled instruction addresses. Out: the next address to look at, and the share of the time spent in given code. An
address in a settled range, a loop that was replaced or refused, is not offered again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from runtime.sampling.perf_events import INTERVAL_NS

NEIGHBOURHOOD = 11  # samples within 2 KiB belong together until the loop around them is known
ENOUGH = 32  # units of time in one neighbourhood, since the last decision, before a look pays


@dataclass
class Hotness:
    """Samples by instruction address, in units of time: the shortest interval between samples.

    ``recent`` is kept apart from ``samples``: code that ran before, when samples were more frequent, must not outweigh
    the code that runs now."""

    samples: Counter[int] = field(default_factory=Counter)  # over the whole run
    first: dict[int, float] = field(default_factory=dict)  # by neighbourhood: monotonic seconds of its first sample
    recent: Counter[int] = field(default_factory=Counter)  # since the last decision, in no settled range
    settled: list[tuple[int, int]] = field(default_factory=list)  # half-open ranges of addresses
    passed: int = 0  # units of time since the last decision, in settled ranges too

    def add(self, addresses: Iterable[int], weight: int = 1) -> int:
        """Add new samples that stand for ``weight`` units of time each; the number of them in no settled range."""
        new = Counter(addresses)
        self.samples.update({address: weight * count for address, count in new.items()})
        now = time.monotonic()
        for address in new:
            self.first.setdefault(address >> NEIGHBOURHOOD, now)
        self.passed += weight * new.total()
        fresh = Counter({a: n for a, n in new.items() if not self._is_settled(a)})
        self.recent.update({address: weight * count for address, count in fresh.items()})
        return fresh.total()

    def hottest(self) -> int | None:
        """The address with most recent samples in the neighbourhood with most of them; None while there are fewer than
        ``ENOUGH``."""
        places: Counter[int] = Counter()
        for address, count in self.recent.items():
            places[address >> NEIGHBOURHOOD] += count
        if not places:
            return None
        place, count = places.most_common(1)[0]
        if count < ENOUGH:
            return None
        inside = {a: n for a, n in self.recent.items() if a >> NEIGHBOURHOOD == place}
        return max(inside, key=lambda a: (inside[a], a))

    @property
    def open_share(self) -> float:
        """The part of the time since the last decision that was spent in no settled range, 0 to 1."""
        return self.recent.total() / self.passed if self.passed else 0.0

    def settle(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Do not offer addresses in these half-open ranges any more; ``recent`` starts anew."""
        self.settled += ranges
        self.recent.clear()
        self.passed = 0

    def reopen(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Offer addresses in these settled ranges again."""
        gone = set(ranges)
        self.settled = [r for r in self.settled if r not in gone]

    def share(self, ranges: Iterable[tuple[int, int]]) -> float:
        """The part of all samples that lies in the half-open ranges, 0 to 1."""
        total = sum(self.samples.values())
        spans = tuple(ranges)
        inside = sum(n for a, n in self.samples.items() if any(low <= a < high for low, high in spans))
        return inside / total if total else 0.0

    def seconds(self, low: int, high: int) -> float:
        """Processor seconds in ``[low, high)`` by all samples. Safe while another thread adds samples."""
        return INTERVAL_NS * 1e-9 * sum(n for a, n in list(self.samples.items()) if low <= a < high)

    @property
    def total_seconds(self) -> float:
        """Processor seconds by all samples. Safe while another thread adds samples."""
        return INTERVAL_NS * 1e-9 * sum(list(self.samples.values()))

    def since(self, before: Mapping[int, int], ranges: Iterable[tuple[int, int]]) -> tuple[int, int]:
        """Units of time in the half-open ranges, and everywhere, since ``samples`` was equal to ``before``. Safe while
        another thread adds samples."""
        spans = tuple(ranges)
        new = [(a, n - before.get(a, 0)) for a, n in list(self.samples.items())]
        return sum(n for a, n in new if any(low <= a < high for low, high in spans)), sum(n for _, n in new)

    def first_seen(self, ranges: Iterable[tuple[int, int]]) -> float | None:
        """Monotonic seconds of the first sample near one of the ranges; None if there is none."""
        places = {p for low, high in ranges for p in range(low >> NEIGHBOURHOOD, (high - 1 >> NEIGHBOURHOOD) + 1)}
        return min((self.first[p] for p in places if p in self.first), default=None)

    def _is_settled(self, address: int) -> bool:
        return any(low <= address < high for low, high in self.settled)
