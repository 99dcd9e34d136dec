"""Where a program spends its time: samples in, the next address worth a look out.

Invariant: an address inside a settled range (a loop that was replaced or rejected) is not offered again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

NEIGHBOURHOOD = 11  # samples within 2 KiB belong together until the loop around them is known
ENOUGH = 32  # units of time in one neighbourhood, since the last decision, before a look pays


@dataclass
class Hotness:
    """``samples`` weighs every instruction address over the whole run, by the time its samples stand for; ``first`` is
    when the first sample of a neighbourhood was read (monotonic clock). ``recent``: those of ``samples`` since the last
    decision: what ran before, sampled more often, must not outweigh what runs now."""

    samples: Counter[int] = field(default_factory=Counter)
    first: dict[int, float] = field(default_factory=dict)
    recent: Counter[int] = field(default_factory=Counter)
    settled: list[tuple[int, int]] = field(default_factory=list)
    passed: int = 0  # units of time since the last decision, in settled loops too

    def add(self, addresses: Iterable[int], weight: int = 1) -> int:
        """New samples that stand for ``weight`` units of time each; how many of them belong to no settled loop."""
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
        """The address with most recent samples in the hottest unsettled neighbourhood, once there are enough."""
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
        """Part of the time since the last decision that was spent in no settled loop, 0 to 1."""
        return self.recent.total() / self.passed if self.passed else 0.0

    def settle(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Never offer addresses in these half-open ranges again; what is recent starts anew."""
        self.settled += ranges
        self.recent.clear()
        self.passed = 0

    def reopen(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Addresses in these ranges, which were settled, may be offered again."""
        gone = set(ranges)
        self.settled = [r for r in self.settled if r not in gone]

    def share(self, ranges: Iterable[tuple[int, int]]) -> float:
        """Part of all samples that fell into the half-open ranges, 0 to 1."""
        total = sum(self.samples.values())
        spans = tuple(ranges)
        inside = sum(n for a, n in self.samples.items() if any(low <= a < high for low, high in spans))
        return inside / total if total else 0.0

    def since(self, before: Mapping[int, int], ranges: Iterable[tuple[int, int]]) -> tuple[int, int]:
        """Units of time in the half-open ranges, and everywhere, since ``samples`` were those ``before``. May be called
        beside the thread that adds."""
        spans = tuple(ranges)
        new = [(a, n - before.get(a, 0)) for a, n in list(self.samples.items())]
        return sum(n for a, n in new if any(low <= a < high for low, high in spans)), sum(n for _, n in new)

    def first_seen(self, ranges: Iterable[tuple[int, int]]) -> float | None:
        """When the first sample near one of the ranges was read."""
        places = {p for low, high in ranges for p in range(low >> NEIGHBOURHOOD, (high - 1 >> NEIGHBOURHOOD) + 1)}
        return min((self.first[p] for p in places if p in self.first), default=None)

    def _is_settled(self, address: int) -> bool:
        return any(low <= address < high for low, high in self.settled)
